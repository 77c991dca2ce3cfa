/* SPDX-License-Identifier: BSD-3-Clause */
/* The page's texts. It asks for its changing part once a second, and is whole without anything from elsewhere. */
#include "ft/serve/jobs.h"

const char serve_page_html[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>tutti lighthouse</title>\n"
    "<link rel=\"icon\" href=\"data:,\"><link rel=\"stylesheet\" href=\"/page.css\">\n"
    "<script src=\"/page.js\" defer></script></head>\n"
    "<body><h1>tutti lighthouse</h1>\n<div id=\"status\">...</div>\n"
    "<dialog id=\"ask\"><form method=\"dialog\"><p>Kill <b id=\"who\"></b>? Its processes end at once.</p>\n"
    "<label>Token <input id=\"token\" type=\"password\" autocomplete=\"off\"></label>\n"
    "<button value=\"kill\">kill</button> <button value=\"\">no</button></form></dialog>\n"
    "<p id=\"said\" role=\"status\"></p></body></html>\n";

const char serve_page_css[] =
    "body{font:15px/1.4 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;color:#222;background:#fff}\n"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25em .6em;border-bottom:1px solid #ddd;\n"
    "overflow-wrap:anywhere}tr.lost td{color:#a00}tr.hangs td{color:#a00}tr.healing td{color:#a60}tr.waiting "
    "td{color:#06c}\n"
    "#trust{color:#a00}a.here{font-weight:bold}#reason{color:#555}\n"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#111}td,th{border-color:#333}}\n";

const char serve_page_js[] =
    "'use strict';\n"
    "const at = id => document.getElementById(id);\n"
    "const job = new URLSearchParams(location.search).get('job') || 'default';\n"
    "async function show() {\n"
    "  try {\n"
    "    const got = await fetch('/status?job=' + encodeURIComponent(job));\n"
    "    if (!got.ok) throw new Error(await got.text());\n"
    "    at('status').innerHTML = await got.text();\n"
    "    for (const t of document.querySelectorAll('time'))\n"
    "      t.textContent = new Date(Number(t.dataset.ms)).toLocaleTimeString();\n"
    "    at('status').classList.remove('old');\n"
    "  } catch (e) { at('status').classList.add('old'); at('said').textContent = 'No status: ' + e.message; }\n"
    "}\n"
    "let who = '';\n"
    "at('status').addEventListener('click', e => {\n"
    "  if (e.target.dataset.kill === undefined) return;\n"
    "  who = e.target.dataset.kill;\n"
    "  at('who').textContent = who;\n"
    "  at('ask').returnValue = '';\n"
    "  at('ask').showModal();\n"
    "});\n"
    "at('ask').addEventListener('close', async () => {\n"
    "  const token = at('token').value;\n"
    "  at('token').value = '';\n"
    "  if (at('ask').returnValue !== 'kill') return;\n"
    "  const path = '/replica/' + encodeURIComponent(who) + '/kill?job=' + encodeURIComponent(job);\n"
    "  const got = await fetch(path, {method: 'POST', headers: {Authorization: 'Bearer ' + token}});\n"
    "  at('said').textContent = await got.text();\n"
    "});\n"
    "show();\n"
    "setInterval(show, 1000);\n";
