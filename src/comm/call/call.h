/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_CALL_CALL_H
#define TUTTI_COMM_CALL_CALL_H

/* Public calls: from the wrappers (coll.c, p2p.c) to whoever carries them out. This room may use object, request and
 * device of comm. Most calls take the short way (short.c), without a request; the others are submitted (submit.c): they
 * are checked, get their route (route.c), and one switch carries the route out. Groups (group.c) and persistent
 * collectives (record.c, persistent.c) keep requests for later. Begin with coll.c, then submit.c. */

#include "comm/call/route.h"

/* The public wrappers end here: enter, check, then dispatch (submit.c). */
enum tutti_status tutti_request_submit(struct tutti_request *request, const struct tutti_call_options *options);
/* Gives a checked request its route, then carries it out, or hands it to the group or recording of this thread. */
enum tutti_status tutti_request_dispatch(struct tutti_request *request);

/* ---- groups (group.c) and recordings (record.c) of this thread ---- */
enum tutti_status tutti_group_add(const struct tutti_request *request);
void tutti_group_spoil(void); /* a call inside the group failed */
enum tutti_status tutti_record_add(const struct tutti_request *request);
void tutti_record_spoil(void);
/* Ends the recording: what was recorded, which is the caller's to disown; or why there is nothing. */
enum tutti_status tutti_record_take(struct tutti_request *out);

#endif
