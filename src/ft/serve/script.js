// SPDX-License-Identifier: BSD-3-Clause
// Renders /status.json once a second. Names and texts are other people's words: they become text nodes, never HTML.
'use strict';
const ROWS = 500; // of groups; the JSON has all
const at = id => document.getElementById(id);
const job = new URLSearchParams(location.search).get('job') || 'default';

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  return made;
}
const time = ms => new Date(ms).toLocaleTimeString();

function group(g, trusted) {
  const row = element('tr', '', {class: g.state});
  const progress = g.progress
    ? `step ${g.progress.step}, collective ${g.progress.collective} for ${Math.floor(g.progress.since_ms / 1000)} s` : '';
  for (const text of [g.replica_id, g.state + (g.asks ? ', asks' : ''), g.step ?? '', g.world_size ?? '',
                      g.address ?? '', (g.heartbeat_age_ms / 1000).toFixed(1) + ' s', progress])
    row.append(element('td', text));
  const last = element('td', '');
  if (g.member && trusted) last.append(element('button', 'kill', {'data-kill': g.replica_id}));
  row.append(last);
  return row;
}

function link(name) {
  return element('a', name, {href: '/?job=' + encodeURIComponent(name), class: name === job ? 'here' : ''});
}

function render(s) {
  at('jobs').replaceChildren('Jobs:', ...s.jobs.flatMap(name => [' ', link(name)]));
  at('trust').textContent = s.authenticated ? '' : 'unauthenticated: this lighthouse believes all who reach it';
  at('quorum').textContent = s.quorum
    ? `Quorum ${s.quorum.quorum_id} of ${s.quorum.groups} groups at step ${s.quorum.max_step}, ${s.healing} healing; ` +
      time(s.quorum.created_ms) : 'There was no quorum yet';
  at('reason').textContent = 'Next: ' + s.reason;
  at('groups').tBodies[0].replaceChildren(...s.groups.slice(0, ROWS).map(g => group(g, s.authenticated)));
  at('more').textContent = s.groups.length > ROWS ? `and ${s.groups.length - ROWS} more: see /status.json` : '';
  at('events').replaceChildren(...s.events.reverse().map(e => element('li', time(e.time_ms) + ' ' + e.text)));
}

async function show() {
  try {
    const got = await fetch('/status.json?job=' + encodeURIComponent(job));
    if (!got.ok) throw new Error(await got.text());
    render(await got.json());
    at('status').classList.remove('old');
  } catch (e) { at('status').classList.add('old'); at('said').textContent = 'No status: ' + e.message; }
}

let who = '';
at('status').addEventListener('click', e => {
  if (e.target.dataset.kill === undefined) return;
  who = e.target.dataset.kill;
  at('who').textContent = who;
  at('ask').returnValue = '';
  at('ask').showModal();
});
at('ask').addEventListener('close', async () => {
  const token = at('token').value;
  at('token').value = '';
  if (at('ask').returnValue !== 'kill') return;
  const path = '/replica/' + encodeURIComponent(who) + '/kill?job=' + encodeURIComponent(job);
  const got = await fetch(path, {method: 'POST', headers: {Authorization: 'Bearer ' + token}});
  at('said').textContent = await got.text();
});
show();
setInterval(show, 1000);
