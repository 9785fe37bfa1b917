/* Minimal epoll loop against MariaDB: COM_STMT_EXECUTE of a prepared point select on N connections, one in flight
 * on each, one thread. Logs in as a user without a password (mysql_native_password).
 * usage: mysql ENDPOINT CONNECTIONS USER SECONDS SQL ROWS; SQL has one `?`, an integer from 1 to ROWS. Prints CPU
 * per operation, and user space's part of it. A reply is judged by its length alone. */
#include "loop.h"

static char buffer[65536];
static const char *endpoint, *user, *sql;
static uint32_t rows, state = 1;
/* The request of each connection: its statement has an id of its own. */
static char (*out)[20];

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
static uint32_t prepare(int fd) {
    char first[512] = {0};
    uint32_t flags = 0x1 | 0x200 | 0x2000 | 0x8000 | 0x80000; /* PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION, PLUGIN_AUTH */
    uint32_t most = 0xffffff, id;
    answer(fd);
    memcpy(first, &flags, 4);
    memcpy(first + 4, &most, 4);
    first[8] = 45;
    size_t at = 32;
    at += (size_t)sprintf(first + at, "%s", user) + 1;
    first[at++] = 0;
    at += (size_t)sprintf(first + at, "mysql_native_password") + 1;
    frame(fd, 1, first, at);
    answer(fd);
    first[0] = 0x16;
    strcpy(first + 1, sql);
    frame(fd, 0, first, 1 + strlen(sql));
    answer(fd);
    memcpy(&id, buffer + 5, 4);
    return id;
}

static int open_connection(int i) {
    int fd = dial(endpoint);
    uint32_t id = prepare(fd), one = 1;
    char first[18] = {0x17};
    memcpy(first + 1, &id, 4);
    first[6] = 1;
    first[11] = 1; /* types follow: LONG, unsigned */
    first[12] = 0x03;
    first[13] = (char)0x80;
    memcpy(first + 14, &one, 4);
    frame(fd, 0, first, sizeof first);
    reply = (size_t)answer(fd);
    out[i][0] = 16;
    out[i][4] = 0x17;
    memcpy(out[i] + 5, &id, 4);
    out[i][10] = 1;
    return fd;
}

static inline void ask(int i) {
    state = state * 1664525u + 1013904223u;
    uint32_t id = 1 + (uint32_t)(((uint64_t)state * rows) >> 32);
    memcpy(out[i] + 16, &id, 4);
    if (write(fds[i], out[i], 20) != 20) die("write");
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    int connections = atoi(argv[2]);
    endpoint = argv[1], user = argv[3], sql = argv[5];
    rows = (uint32_t)atoi(argv[6]);
    out = calloc((size_t)connections, sizeof *out);
    return exchange(connections, atof(argv[4]));
}
