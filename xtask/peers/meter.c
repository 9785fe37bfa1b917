/* Runs a command and divides its CPU time, user and system, by the number of operations that it does.
 * usage: meter OPERATIONS COMMAND [ARGUMENT…], where the number is known, or
 *        meter WORDS COMMAND [ARGUMENT…], where the command prints the number in front of these words and
 *        its own seconds behind them.
 * What the command prints is dropped. */
#include "peer.h"
#include <ctype.h>
#include <sys/wait.h>

/* The number in front of the words, and the seconds behind them. */
static double number_before(const char *text, const char *words, double *seconds) {
    const char *at = strstr(text, words);
    if (!at) return 0;
    double after = atof(at + strlen(words));
    if (after > 0) *seconds = after;
    while (at > text && at[-1] == ' ') at--;
    while (at > text && isdigit((unsigned char)at[-1])) at--;
    return atof(at);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    static char text[65536];
    size_t length = 0;
    int output[2];
    if (pipe(output)) die("pipe");
    uint64_t begun = now_ns();
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        dup2(output[1], 1);
        close(output[0]);
        execvp(argv[2], argv + 2);
        die(argv[2]);
    }
    close(output[1]);
    char more[4096];
    ssize_t got;
    while ((got = read(output[0], more, sizeof more)) > 0) {
        size_t room = sizeof text - 1 - length;
        size_t kept = (size_t)got < room ? (size_t)got : room;
        memcpy(text + length, more, kept);
        length += kept;
    }
    int status;
    struct rusage usage;
    if (wait4(child, &status, 0, &usage) < 0) die("wait4");
    if (!WIFEXITED(status) || WEXITSTATUS(status)) return 1;
    double seconds = (double)(now_ns() - begun) / 1e9;
    double operations = isdigit((unsigned char)argv[1][0]) ? atof(argv[1]) : number_before(text, argv[1], &seconds);
    if (operations < 1) return 1;
    double user = usage.ru_utime.tv_sec * 1e6 + usage.ru_utime.tv_usec;
    double system = usage.ru_stime.tv_sec * 1e6 + usage.ru_stime.tv_usec;
    printf("cpu_us_per_op %.4f user_us_per_op %.4f per_s %.0f\n", (user + system) / operations, user / operations,
           operations / seconds);
    return 0;
}
