/* The epoll loop of the peers: one request in flight on each connection, one thread. Who includes this says how a
 * connection is opened and how the next request is sent on it. */
#include "peer.h"
#include <sys/epoll.h>

static int *fds;

/* A connection that is ready for its first request. */
static int open_connection(int i);
/* Sends the next request on connection i. */
static inline void ask(int i);
/* Length of every reply; known once the connections are open. */
static size_t reply;

/* Exchanges requests for so many seconds, after a tenth of that as warm-up. Prints CPU time per operation in
 * microseconds, user space's part of it, and operations a second. A reply is judged by its length alone. */
static int exchange(int connections, double seconds) {
    uint64_t length = (uint64_t)(seconds * 1e9), warm_up = length / 10, operations = 0;
    char *in = malloc(65536);
    size_t *got = calloc((size_t)connections, sizeof *got);
    int epoll = epoll_create1(0);
    struct epoll_event event, events[256];
    fds = malloc(sizeof *fds * (size_t)connections);
    for (int i = 0; i < connections; i++) {
        fds[i] = open_connection(i);
        event.events = EPOLLIN;
        event.data.u32 = (uint32_t)i;
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event)) die("epoll_ctl");
    }
    uint64_t start = now_ns() + warm_up, end = start + length, begun = 0;
    double cpu = 0, user = 0;
    for (int i = 0; i < connections; i++) ask(i);
    for (uint64_t at = 0; at < end;) {
        int ready = epoll_wait(epoll, events, 256, -1);
        if (ready < 0) die("epoll_wait");
        for (int e = 0; e < ready; e++) {
            uint32_t i = events[e].data.u32;
            ssize_t n = read(fds[i], in, 65536);
            if (n <= 0) die("read");
            got[i] += (size_t)n;
            if (got[i] < reply) continue;
            got[i] = 0;
            operations++;
            at = now_ns();
            ask((int)i);
        }
        if (!begun && at >= start) {
            begun = at;
            operations = 0;
            cpu = cpu_us(0);
            user = cpu_us(1);
        }
    }
    double measured = (double)(now_ns() - begun) / 1e9;
    printf("cpu_us_per_op %.4f user_us_per_op %.4f per_s %.0f\n", (cpu_us(0) - cpu) / (double)operations,
           (cpu_us(1) - user) / (double)operations, (double)operations / measured);
    return 0;
}
