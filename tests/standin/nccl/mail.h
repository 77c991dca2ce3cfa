/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STANDIN_NCCL_MAIL_H
#define TUTTI_STANDIN_NCCL_MAIL_H

/* What the ranks of a communicator send one another, threads and processes alike: rings of bytes in a file that is
 * memory, which all of them map. The file's name is the communicator's unique id. */

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace standin
{
/* Between a pair they come in the order of both sides' lists. One that was sent with another length than it is received
 * with never comes. */
struct message {
    bool sends;
    unsigned peer;
    char *at;
    size_t bytes;
    size_t done = 0; /* bytes of its length, which is written first, and of its data */
};

class mail
{
  public:
    /* A new file's name; "": there is none. It goes with the last rank, or with its maker. */
    static std::string make();
    bool open(const std::string &name, unsigned n, unsigned me);
    /* Waits for all ranks to have opened it. False: aborted. */
    bool meet(const std::atomic<bool> &aborted);
    /* All of the messages; false: aborted. */
    bool exchange(std::vector<message> messages, const std::atomic<bool> &aborted);
    void close();

  private:
    struct ring;
    struct page;
    page *base = nullptr;
    size_t size = 0;
    unsigned n = 0, me = 0;
    std::string name;

    ring *ring_of(unsigned from, unsigned to) const;
    bool move(message *one) const; /* whether it came any further */
};
void nap();
} // namespace standin

#endif
