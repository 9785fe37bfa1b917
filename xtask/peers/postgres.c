/* Minimal epoll loop against PostgreSQL: Bind, Execute, Sync of a prepared point select on N connections, one
 * request in flight on each, one thread; the role needs no password (trust).
 * usage: postgres ENDPOINT USER DATABASE CONNECTIONS ROWS SECONDS; the table `samehost_peer` is there already.
 * Prints CPU per operation, and user space's part of it. A reply is judged by its length alone. */
#include "peer.h"
#include <sys/epoll.h>

static const char sql[] = "SELECT content FROM samehost_peer WHERE id = $1";

static size_t put(char *out, size_t at, char tag, const void *body, size_t length) {
    uint32_t size = htonl((uint32_t)(length + 4));
    if (tag) out[at++] = tag;
    memcpy(out + at, &size, 4);
    memcpy(out + at + 4, body, length);
    return at + 4 + length;
}

/* Reads messages up to ReadyForQuery. */
static void until_ready(int fd) {
    unsigned char in[8192];
    size_t have = 0;
    for (;;) {
        ssize_t n = read(fd, in + have, sizeof in - have);
        if (n <= 0) die("read");
        have += (size_t)n;
        size_t at = 0;
        while (have - at >= 5) {
            uint32_t size;
            memcpy(&size, in + at + 1, 4);
            size_t whole = ntohl(size) + 1;
            if (have - at < whole) break;
            if (in[at] == 'E') {
                fprintf(stderr, "the server refused\n");
                exit(1);
            }
            if (in[at] == 'Z') return;
            at += whole;
        }
        memmove(in, in + at, have - at);
        have -= at;
    }
}

static void login(int fd, const char *user, const char *database) {
    char out[1024], body[512];
    size_t n = 4;
    memcpy(body, "\0\3\0\0", 4);
    n += (size_t)sprintf(body + n, "user%c%s%cdatabase%c%s%c", 0, user, 0, 0, database, 0);
    body[n++] = 0;
    size_t at = put(out, 0, 0, body, n);
    if (write(fd, out, at) != (ssize_t)at) die("write");
    until_ready(fd);
    memcpy(body, "s\0", 2);
    memcpy(body + 2, sql, sizeof sql);
    memcpy(body + 2 + sizeof sql, "\0\1\0\0\0\x17", 6);
    at = put(out, 0, 'P', body, 2 + sizeof sql + 6);
    at = put(out, at, 'S', "", 0);
    if (write(fd, out, at) != (ssize_t)at) die("write");
    until_ready(fd);
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    int connections = atoi(argv[4]);
    uint32_t rows = (uint32_t)atoi(argv[5]);
    uint64_t length = (uint64_t)(atof(argv[6]) * 1e9), warm_up = length / 10, operations = 0, random = 88172645463325252u;
    char out[128], *in = malloc(65536);
    size_t request = put(out, 0, 'B', "\0s\0\0\1\0\1\0\1\0\0\0\4....\0\0", 19);
    size_t id = request - 6;
    request = put(out, request, 'E', "\0\0\0\0\0", 5);
    request = put(out, request, 'S', "", 0);
    /* BindComplete, a DataRow with one column of 120 bytes, CommandComplete "SELECT 1", ReadyForQuery */
    size_t reply = 5 + (1 + 4 + 2 + 4 + 120) + (1 + 4 + 9) + 6;
    size_t *got = calloc((size_t)connections, sizeof *got);
    int *fds = malloc(sizeof *fds * (size_t)connections), epoll = epoll_create1(0);
    struct epoll_event event, events[256];
    for (int i = 0; i < connections; i++) {
        fds[i] = dial(argv[1]);
        login(fds[i], argv[2], argv[3]);
        event.events = EPOLLIN;
        event.data.u32 = (uint32_t)i;
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event)) die("epoll_ctl");
    }
#define ASK(i)                                                                                                         \
    do {                                                                                                               \
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;                                         \
        uint32_t next = htonl(1000000001u + (uint32_t)(((random >> 32) * rows) >> 32));                                \
        memcpy(out + id, &next, 4);                                                                                    \
        if (write(fds[i], out, request) != (ssize_t)request) die("write");                                             \
    } while (0)
    uint64_t start = now_ns() + warm_up, end = start + length, begun = 0;
    double cpu = 0, user = 0;
    for (int i = 0; i < connections; i++) ASK(i);
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
            ASK(i);
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
