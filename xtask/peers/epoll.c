/* Minimal epoll loop: N connections, one request in flight on each, one thread.
 * usage: epoll ENDPOINT CONNECTIONS BYTES SECONDS; prints CPU per operation, and user space's part of it. */
#include "peer.h"
#include <sys/epoll.h>

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int connections = atoi(argv[2]);
    size_t size = (size_t)atoi(argv[3]);
    uint64_t length = (uint64_t)(atof(argv[4]) * 1e9), warm_up = length / 10, operations = 0;
    char *out = calloc(1, size), *in = malloc(65536);
    size_t *got = calloc((size_t)connections, sizeof *got);
    int *fds = malloc(sizeof *fds * (size_t)connections), epoll = epoll_create1(0);
    struct epoll_event event, events[256];
    for (int i = 0; i < connections; i++) {
        fds[i] = dial(argv[1]);
        event.events = EPOLLIN;
        event.data.u32 = (uint32_t)i;
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event)) die("epoll_ctl");
    }
    uint64_t start = now_ns() + warm_up, end = start + length, begun = 0;
    double cpu = 0, user = 0;
    for (int i = 0; i < connections; i++)
        if (write(fds[i], out, size) != (ssize_t)size) die("write");
    for (uint64_t at = 0; at < end;) {
        int ready = epoll_wait(epoll, events, 256, -1);
        if (ready < 0) die("epoll_wait");
        for (int e = 0; e < ready; e++) {
            uint32_t i = events[e].data.u32;
            ssize_t n = read(fds[i], in, 65536);
            if (n <= 0) die("read");
            got[i] += (size_t)n;
            if (got[i] < size) continue;
            got[i] = 0;
            operations++;
            at = now_ns();
            if (write(fds[i], out, size) != (ssize_t)size) die("write");
        }
        if (!begun && at >= start) {
            begun = at;
            operations = 0;
            cpu = cpu_us(0);
            user = cpu_us(1);
        }
    }
    double seconds = (double)(now_ns() - begun) / 1e9;
    printf("cpu_us_per_op %.4f user_us_per_op %.4f per_s %.0f\n", (cpu_us(0) - cpu) / (double)operations,
           (cpu_us(1) - user) / (double)operations, (double)operations / seconds);
    return 0;
}
