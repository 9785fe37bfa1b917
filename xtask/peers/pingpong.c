/* Minimal ping-pong: one connection; write, then wait for the reply in read, or in poll as most programs do.
 * usage: pingpong ENDPOINT BYTES SECONDS read|poll; prints the median round trip. */
#include "peer.h"
#include <poll.h>

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int polls = strcmp(argv[4], "poll") == 0;
    size_t size = (size_t)atoi(argv[2]);
    uint64_t length = (uint64_t)(atof(argv[3]) * 1e9), warm_up = length / 10;
    char *out = calloc(1, size), *in = malloc(size);
    uint32_t *took = malloc(sizeof *took * 20000000);
    size_t count = 0;
    int fd = dial(argv[1]);
    uint64_t begun = now_ns(), start = begun + warm_up, end = start + length;
    for (;;) {
        if (write(fd, out, size) != (ssize_t)size) die("write");
        for (size_t got = 0; got < size;) {
            struct pollfd readable = {.fd = fd, .events = POLLIN};
            if (polls && poll(&readable, 1, -1) != 1) die("poll");
            ssize_t n = read(fd, in + got, size - got);
            if (n <= 0) die("read");
            got += (size_t)n;
        }
        uint64_t done = now_ns();
        if (done >= start) took[count++] = (uint32_t)(done - begun);
        begun = done;
        if (done >= end) break;
    }
    qsort(took, count, sizeof *took, ascending);
    printf("p50_us %.3f\n", took[count / 2] / 1e3);
    return 0;
}
