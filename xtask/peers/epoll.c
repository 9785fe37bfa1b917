/* Minimal epoll loop: N connections, one request in flight on each, one thread.
 * usage: epoll ENDPOINT CONNECTIONS BYTES SECONDS; prints CPU per operation, and user space's part of it. */
#include "loop.h"

static const char *endpoint;
static char *out;

static int open_connection(int i) {
    (void)i;
    return dial(endpoint);
}

static inline void ask(int i) {
    if (write(fds[i], out, reply) != (ssize_t)reply) die("write");
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    endpoint = argv[1];
    reply = (size_t)atoi(argv[3]);
    out = calloc(1, reply);
    return exchange(atoi(argv[2]), atof(argv[4]));
}
