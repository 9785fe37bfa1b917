/* Runs a command and divides its CPU time, user and system, by a number of operations that it is known to do.
 * usage: meter OPERATIONS COMMAND [ARGUMENT…]; what the command prints is dropped. */
#include "peer.h"
#include <fcntl.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    double operations = atof(argv[1]);
    uint64_t begun = now_ns();
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        execvp(argv[2], argv + 2);
        die(argv[2]);
    }
    int status;
    struct rusage usage;
    if (wait4(child, &status, 0, &usage) < 0) die("wait4");
    if (!WIFEXITED(status) || WEXITSTATUS(status)) return 1;
    double user = usage.ru_utime.tv_sec * 1e6 + usage.ru_utime.tv_usec;
    double system = usage.ru_stime.tv_sec * 1e6 + usage.ru_stime.tv_usec;
    printf("cpu_us_per_op %.4f user_us_per_op %.4f per_s %.0f\n", (user + system) / operations, user / operations,
           operations / ((double)(now_ns() - begun) / 1e9));
    return 0;
}
