/* Minimal epoll loop against PostgreSQL: Bind, Execute, Sync of a prepared point select on N connections, one
 * request in flight on each, one thread; the role needs no password (trust).
 * usage: postgres ENDPOINT USER DATABASE CONNECTIONS ROWS SECONDS; the table `samehost_peer` is there already.
 * Prints CPU per operation, and user space's part of it. A reply is judged by its length alone. */
#include "loop.h"

static const char sql[] = "SELECT content FROM samehost_peer WHERE id = $1";
static const char *endpoint, *user, *database;
static char out[128];
static size_t request, id;
static uint32_t rows;
static uint64_t state = 88172645463325252u;

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

static void login(int fd) {
    char first[1024], body[512];
    size_t n = 4;
    memcpy(body, "\0\3\0\0", 4);
    n += (size_t)sprintf(body + n, "user%c%s%cdatabase%c%s%c", 0, user, 0, 0, database, 0);
    body[n++] = 0;
    size_t at = put(first, 0, 0, body, n);
    if (write(fd, first, at) != (ssize_t)at) die("write");
    until_ready(fd);
    memcpy(body, "s\0", 2);
    memcpy(body + 2, sql, sizeof sql);
    memcpy(body + 2 + sizeof sql, "\0\1\0\0\0\x17", 6);
    at = put(first, 0, 'P', body, 2 + sizeof sql + 6);
    at = put(first, at, 'S', "", 0);
    if (write(fd, first, at) != (ssize_t)at) die("write");
    until_ready(fd);
}

static int open_connection(int i) {
    (void)i;
    int fd = dial(endpoint);
    login(fd);
    return fd;
}

static inline void ask(int i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    uint32_t next = htonl(1000000001u + (uint32_t)(((state >> 32) * rows) >> 32));
    memcpy(out + id, &next, 4);
    if (write(fds[i], out, request) != (ssize_t)request) die("write");
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    endpoint = argv[1], user = argv[2], database = argv[3];
    rows = (uint32_t)atoi(argv[5]);
    request = put(out, 0, 'B', "\0s\0\0\1\0\1\0\1\0\0\0\4....\0\0", 19);
    id = request - 6;
    request = put(out, request, 'E', "\0\0\0\0\0", 5);
    request = put(out, request, 'S', "", 0);
    /* BindComplete, a DataRow with one column of 120 bytes, CommandComplete "SELECT 1", ReadyForQuery */
    reply = 5 + (1 + 4 + 2 + 4 + 120) + (1 + 4 + 9) + 6;
    return exchange(atoi(argv[4]), atof(argv[6]));
}
