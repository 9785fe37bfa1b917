/* What an operation of a load generator costs it and the server, without what its connections cost: runs a command
 * with N and then with 1 operation for each client, and divides the differences. The server's time is that of the
 * process given, of its children (a backend for each connection), and of those that ended. Children's time is known
 * in ticks of 10 ms once they have ended, so let the command run for a second.
 * usage: family PID CLIENTS N COMMAND [ARGUMENT…]; the word @ stands for the operations of each client. What the
 * command prints is dropped. */
#include "peer.h"
#include <fcntl.h>
#include <sys/wait.h>

/* Ticks of a process, and of its children that ended where `reaped`; its children are listed in /proc. */
static double ticks(long pid, int reaped) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = 0;
    char *after = strrchr(text, ')');
    unsigned long user = 0, system = 0;
    long child_user = 0, child_system = 0;
    if (!after || sscanf(after + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &user, &system,
                         &child_user, &child_system) != 4)
        return 0;
    return (double)(user + system) + (reaped ? (double)(child_user + child_system) : 0);
}

static double family(long pid) {
    char path[64];
    double sum = ticks(pid, 1);
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", pid, pid);
    FILE *file = fopen(path, "r");
    if (!file) return sum;
    for (long child; fscanf(file, "%ld", &child) == 1;) sum += ticks(child, 1);
    fclose(file);
    return sum;
}

struct cost {
    double seconds, cpu, user, server;
};

static double cpu_of(const struct rusage *usage, int user_only) {
    double user = usage->ru_utime.tv_sec * 1e6 + usage->ru_utime.tv_usec;
    return user_only ? user : user + usage->ru_stime.tv_sec * 1e6 + usage->ru_stime.tv_usec;
}

static struct cost run(long server, char **command, const char *operations) {
    for (char **word = command; *word; word++)
        if (!strcmp(*word, "@")) *word = (char *)operations;
    double before = family(server);
    uint64_t begun = now_ns();
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
        execvp(command[0], command);
        _exit(127);
    }
    int status;
    struct rusage usage;
    if (wait4(child, &status, 0, &usage) < 0) die("wait4");
    if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "%s failed\n", command[0]);
        exit(1);
    }
    struct cost cost = {.seconds = (double)(now_ns() - begun) / 1e9, .cpu = cpu_of(&usage, 0), .user = cpu_of(&usage, 1)};
    /* The backends notice that their clients have gone. */
    usleep(100000);
    cost.server = (family(server) - before) / (double)sysconf(_SC_CLK_TCK) * 1e6;
    return cost;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    long server = atol(argv[1]);
    double operations = atof(argv[2]) * (atof(argv[3]) - 1);
    char *again[64] = {0};
    for (int i = 4; i < argc && i < 67; i++) again[i - 4] = argv[i];
    struct cost many = run(server, argv + 4, argv[3]), one = run(server, again, "1");
    double cpu = (many.cpu - one.cpu) / operations, servers = (many.server - one.server) / operations;
    printf("cpu_us_per_op %.4f user_us_per_op %.4f server_us_per_op %.4f total_us_per_op %.4f per_s %.0f\n", cpu,
           (many.user - one.user) / operations, servers, cpu + servers, operations / (many.seconds - one.seconds));
    return 0;
}
