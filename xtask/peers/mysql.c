/* Minimal epoll loop against MariaDB: COM_STMT_EXECUTE of a prepared point select on N connections, one in flight
 * on each, one thread. Logs in as a user without a password (mysql_native_password).
 * usage: mysql ENDPOINT CONNECTIONS USER SECONDS SQL ROWS; SQL has one `?`, an integer from 1 to ROWS. Prints CPU
 * per operation, and user space's part of it. A reply is judged by its length alone. */
#include "peer.h"
#include <sys/epoll.h>

static char buffer[65536];

static void frame(int fd, unsigned char sequence, const void *payload, size_t length) {
    char out[4096] = {(char)length, (char)(length >> 8), 0, (char)sequence};
    memcpy(out + 4, payload, length);
    if (write(fd, out, length + 4) != (ssize_t)(length + 4)) die("write");
}

static ssize_t answer(int fd) {
    ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 5 || (unsigned char)buffer[4] == 0xff) die("refused");
    return n;
}

/* Logs in and prepares; the statement's id. */
static uint32_t prepare(int fd, const char *user, const char *sql) {
    char out[512] = {0};
    uint32_t flags = 0x1 | 0x200 | 0x2000 | 0x8000 | 0x80000; /* PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION, PLUGIN_AUTH */
    uint32_t most = 0xffffff, id;
    answer(fd);
    memcpy(out, &flags, 4);
    memcpy(out + 4, &most, 4);
    out[8] = 45;
    size_t at = 32;
    at += (size_t)sprintf(out + at, "%s", user) + 1;
    out[at++] = 0;
    at += (size_t)sprintf(out + at, "mysql_native_password") + 1;
    frame(fd, 1, out, at);
    answer(fd);
    out[0] = 0x16;
    strcpy(out + 1, sql);
    frame(fd, 0, out, 1 + strlen(sql));
    answer(fd);
    memcpy(&id, buffer + 5, 4);
    return id;
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    int connections = atoi(argv[2]);
    uint32_t rows = (uint32_t)atoi(argv[6]), random = 1;
    uint64_t length = (uint64_t)(atof(argv[4]) * 1e9), warm_up = length / 10, operations = 0;
    int *fds = malloc(sizeof *fds * (size_t)connections), epoll = epoll_create1(0);
    size_t *got = calloc((size_t)connections, sizeof *got), reply = 0;
    char(*out)[20] = calloc((size_t)connections, sizeof *out);
    struct epoll_event event, events[256];
    for (int i = 0; i < connections; i++) {
        fds[i] = dial(argv[1]);
        uint32_t id = prepare(fds[i], argv[3], argv[5]), one = 1;
        char first[18] = {0x17};
        memcpy(first + 1, &id, 4);
        first[6] = 1;
        first[11] = 1; /* types follow: LONG, unsigned */
        first[12] = 0x03;
        first[13] = (char)0x80;
        memcpy(first + 14, &one, 4);
        frame(fds[i], 0, first, sizeof first);
        reply = (size_t)answer(fds[i]);
        out[i][0] = 16;
        out[i][4] = 0x17;
        memcpy(out[i] + 5, &id, 4);
        out[i][10] = 1;
        event.events = EPOLLIN;
        event.data.u32 = (uint32_t)i;
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event)) die("epoll_ctl");
    }
    uint64_t start = now_ns() + warm_up, end = start + length, begun = 0;
    double cpu = 0, user = 0;
    for (int i = 0; i < connections; i++) {
        uint32_t one = 1;
        memcpy(out[i] + 16, &one, 4);
        if (write(fds[i], out[i], 20) != 20) die("write");
    }
    for (uint64_t at = 0; at < end;) {
        int ready = epoll_wait(epoll, events, 256, -1);
        if (ready < 0) die("epoll_wait");
        for (int e = 0; e < ready; e++) {
            uint32_t i = events[e].data.u32;
            ssize_t n = read(fds[i], buffer, sizeof buffer);
            if (n <= 0) die("read");
            got[i] += (size_t)n;
            if (got[i] < reply) continue;
            got[i] = 0;
            operations++;
            at = now_ns();
            random = random * 1664525u + 1013904223u;
            uint32_t id = 1 + (uint32_t)(((uint64_t)random * rows) >> 32);
            memcpy(out[i] + 16, &id, 4);
            if (write(fds[i], out[i], 20) != 20) die("write");
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
