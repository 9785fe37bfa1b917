/* Minimal epoll loop against Redis: GET of one key on N connections, one request in flight on each, one thread.
 * usage: redis ENDPOINT CONNECTIONS BYTES SECONDS; sets the key first, prints CPU per operation, and user
 * space's part of it. A reply is judged by its length alone. */
#include "peer.h"
#include <sys/epoll.h>

static const char key[] = "samehost:0123456789abcdef:128";

static void set(const char *endpoint, size_t size) {
    int fd = dial(endpoint);
    char *request = malloc(size + 256), reply[64];
    size_t at = (size_t)sprintf(request, "*3\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%zu\r\n", strlen(key), key, size);
    memset(request + at, 'x', size);
    memcpy(request + at + size, "\r\n", 2);
    if (write(fd, request, at + size + 2) < 0) die("write");
    if (read(fd, reply, sizeof reply) < 1 || reply[0] != '+') die("SET");
    close(fd);
    free(request);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int connections = atoi(argv[2]);
    size_t size = (size_t)atoi(argv[3]);
    uint64_t length = (uint64_t)(atof(argv[4]) * 1e9), warm_up = length / 10, operations = 0;
    set(argv[1], size);
    char out[256], head[32], *in = malloc(65536);
    ssize_t request = sprintf(out, "*2\r\n$3\r\nGET\r\n$%zu\r\n%s\r\n", strlen(key), key);
    size_t reply = (size_t)sprintf(head, "$%zu\r\n", size) + size + 2;
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
        if (write(fds[i], out, (size_t)request) != request) die("write");
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
            if (write(fds[i], out, (size_t)request) != request) die("write");
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
