/* What the minimal C clients share: an endpoint from the command line, the clock, CPU time.
 * They are the yardstick for our own client: nothing is checked, counted or recorded beyond the figure. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void die(const char *what) {
    perror(what);
    exit(1);
}

/* "unix:/path" or "tcp:127.0.0.1:port" */
static int dial(const char *endpoint) {
    if (strncmp(endpoint, "unix:", 5) == 0) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        strncpy(address.sun_path, endpoint + 5, sizeof address.sun_path - 1);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) die(endpoint);
        return fd;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address.sin_port = htons((uint16_t)atoi(strrchr(endpoint, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) die(endpoint);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static double cpu_us(int user_only) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double user = usage.ru_utime.tv_sec * 1e6 + usage.ru_utime.tv_usec;
    return user_only ? user : user + usage.ru_stime.tv_sec * 1e6 + usage.ru_stime.tv_usec;
}
