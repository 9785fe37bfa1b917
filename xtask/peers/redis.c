/* Minimal epoll loop against Redis: GET of one key on N connections, one request in flight on each, one thread.
 * usage: redis ENDPOINT CONNECTIONS BYTES SECONDS; sets the key first, prints CPU per operation, and user
 * space's part of it. A reply is judged by its length alone. */
#include "loop.h"

static const char key[] = "samehost:0123456789abcdef:128";
static const char *endpoint;
static char out[256];
static ssize_t request;

static void set(size_t size) {
    int fd = dial(endpoint);
    char *text = malloc(size + 256), answer[64];
    size_t at = (size_t)sprintf(text, "*3\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%zu\r\n", strlen(key), key, size);
    memset(text + at, 'x', size);
    memcpy(text + at + size, "\r\n", 2);
    if (write(fd, text, at + size + 2) < 0) die("write");
    if (read(fd, answer, sizeof answer) < 1 || answer[0] != '+') die("SET");
    close(fd);
    free(text);
}

static int open_connection(int i) {
    (void)i;
    return dial(endpoint);
}

static inline void ask(int i) {
    if (write(fds[i], out, (size_t)request) != request) die("write");
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    endpoint = argv[1];
    size_t size = (size_t)atoi(argv[3]);
    char head[32];
    set(size);
    request = sprintf(out, "*2\r\n$3\r\nGET\r\n$%zu\r\n%s\r\n", strlen(key), key);
    reply = (size_t)sprintf(head, "$%zu\r\n", size) + size + 2;
    return exchange(atoi(argv[2]), atof(argv[4]));
}
