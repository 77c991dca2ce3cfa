/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_FLIGHT_P2P_H
#define TUTTI_ENGINE_FLIGHT_P2P_H

/* Messages between two ranks: messages are matched by (source, tag). What arrives before its receive waits as an
 * envelope. The room uses team and report. Begin with p2p.c. All functions are the owner's. */

#include "engine/team/team.h"

/* ---- p2p_recv.c: messages that nobody asked for yet ---- */
/* early: not the next of its sender. False: the sender had no right to send it. */
bool tutti_envelope_keep(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                         const void *payload, bool early);
struct tutti_envelope *tutti_envelope_find(struct tutti_team *team, int32_t source, int32_t tag);
struct tutti_envelope *tutti_envelope_find_early(struct tutti_team *team, uint32_t source, uint64_t number);
void tutti_envelope_promote(struct tutti_team *team, struct tutti_envelope *envelope);
void tutti_envelope_drop(struct tutti_team *team, struct tutti_envelope *envelope);
/* NULL: it is still with the sender. */
const unsigned char *tutti_envelope_payload(const struct tutti_team *team, const struct tutti_envelope *envelope);

/* ---- p2p.c ---- */
/* Takes the message at *at off its list, and ends it. */
void tutti_p2p_message_end(struct tutti_team *team, struct tutti_p2p_message **at, const struct tutti_error *error);
struct tutti_p2p_message **tutti_p2p_message_find(struct tutti_p2p_message **at, enum tutti_p2p_message_state state,
                                                  uint32_t peer, uint64_t number);
/* What a send of a message's packet came to: false when the team broke. */
bool tutti_p2p_message_sent(struct tutti_team *team, const struct tutti_p2p_message *msg, enum tutti_status status);
struct tutti_packet tutti_p2p_message_packet(const struct tutti_p2p_message *msg, uint8_t type);

bool tutti_sends_run(struct tutti_team *team);
void tutti_send_granted(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet);
void tutti_send_read(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet);

/* The receive at *at was posted: its message may be here already. */
void tutti_recv_begin(struct tutti_team *team, struct tutti_p2p_message **at);
bool tutti_recvs_run(struct tutti_team *team);
void tutti_recv_envelope(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                         const void *payload);
void tutti_recv_payload(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                        const void *payload);
/* The wire has put a part of the message into its place. */
void tutti_recv_placed(struct tutti_team *team, const struct tutti_p2p_message *msg);
/* As tutti_flights_place, of messages. */
bool tutti_p2p_messages_place(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                              struct tutti_target *target, struct tutti_loan *what);

/* ---- p2p.c ---- */
void tutti_p2p_message_begin(struct tutti_team *team, struct tutti_p2p_message *msg);
bool tutti_p2p_messages_run(struct tutti_team *team, bool retry); /* whether anything happened */
void tutti_p2p_messages_deliver(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                                const void *payload);
/* As tutti_flights_back, of messages. */
void tutti_p2p_messages_back(struct tutti_team *team, const struct tutti_loan *loan, enum tutti_status status);
void tutti_p2p_messages_credit(struct tutti_team *team, struct tutti_channel *channel,
                               const struct tutti_packet *packet);
void tutti_p2p_messages_fail(struct tutti_team *team, const struct tutti_error *error);
/* Whether credits for envelopes are due. */
bool tutti_p2p_messages_owe(const struct tutti_team *team, const struct tutti_channel *channel);

#endif
