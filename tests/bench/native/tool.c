/* What the benchmark runs as agents, and how it looks at clocks: small, static, so that its own cost is small.
 *
 *   tool time FILE UID CMD...    run CMD (as UID if not 0), write "start end maxrss_kb status cpu_us" to FILE
 *   tool now FILE                the agent whose first instruction is looked for: writes the clock
 *   tool sleep MS                sleeps
 *   tool leave FILE detached|chain|at-once N   leaves N live descendants in sessions of their own, waits until its parent
 *                                (unless at-once) sleeps, writes the clock, exits
 *   tool reap DIR CMD...         the C reaper: subreaper, wait, kill and reap level by level, DIR/cleanup.json by rename
 *   tool watch DIR NAME...       "NAME clock" for each of the names as it appears in DIR, ends after the last one
 *   tool flood FILE BYTES LINE   writes lines of LINE bytes to stdout (LINE 0: one line), "start end" to FILE
 *   tool hold FILE               writes the proxy's URL and token to FILE, then waits for a signal
 *   codex ...                    (the tool under that name) a CLI that leaves the rollout $BENCH_ROLLOUT and exits
 *
 * All clocks are CLOCK_MONOTONIC in nanoseconds, one clock for all processes of a machine.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef long long ns;

static ns clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void die(const char *what)
{
    perror(what);
    _exit(125);
}

/* Whole at once: the reader waits for the name. */
static void put(const char *path, const char *text)
{
    char temporary[PATH_MAX];
    snprintf(temporary, sizeof temporary, "%s.tmp%d", path, getpid());
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || write(fd, text, strlen(text)) < 0 || close(fd) || rename(temporary, path))
        die(path);
}

static int run_timed(char **argv)
{
    const char *file = argv[0];
    uid_t uid = atoi(argv[1]);
    char text[200];
    struct rusage used;
    int status;
    ns start = clock_ns();
    pid_t pid = fork();
    if (!pid) {
        if (uid && (setgroups(0, NULL) || setgid(uid) || setuid(uid)))
            die("setuid");
        execvp(argv[2], argv + 2);
        die(argv[2]);
    }
    wait4(pid, &status, 0, &used);
    ns end = clock_ns();
    snprintf(text, sizeof text, "%lld %lld %ld %d %lld", start, end, used.ru_maxrss, status,
             (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000LL + used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    put(file, text);
    return 0;
}

static void wait_for_ever(int ready)
{
    if (write(ready, "x", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

/* Until all threads of a process have been asleep for 50 ms: what it loads in the background is loaded. */
static void until_asleep(pid_t pid)
{
    char path[300], text[400];
    for (int calm = 0; calm < 10; calm++) {
        usleep(5000);
        snprintf(path, sizeof path, "/proc/%d/task", pid);
        DIR *tasks = opendir(path);
        if (!tasks)
            return;
        for (struct dirent *task; (task = readdir(tasks));) {
            snprintf(path, sizeof path, "/proc/%d/task/%s/stat", pid, task->d_name);
            int fd = task->d_name[0] == '.' ? -1 : open(path, O_RDONLY);
            if (fd < 0)
                continue;
            ssize_t size = read(fd, text, sizeof text - 1);
            close(fd);
            text[size > 0 ? size : 0] = 0;
            char *state = strrchr(text, ')');
            if (state && state[2] != 'S')
                calm = 0;
        }
        closedir(tasks);
    }
}

static int leave(const char *file, int chain, int count, int at_once)
{
    int ready[2];
    char byte, text[40];
    if (pipe2(ready, O_CLOEXEC))
        die("pipe");
    for (int i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid < 0)
            die("fork");
        if (!chain && !pid) {
            setsid();
            wait_for_ever(ready[1]);
        }
        if (chain && !pid) {
            setsid();
            if (write(ready[1], "x", 1) != 1)
                _exit(1);
            if (i == count - 1)
                for (;;)
                    pause();
        } else if (chain) {
            if (i)
                for (;;)
                    pause();
            break;
        }
    }
    for (int i = 0; i < count; i++)
        if (read(ready[0], &byte, 1) != 1)
            die("read");
    if (!at_once)
        until_asleep(getppid());
    snprintf(text, sizeof text, "%lld", clock_ns());
    put(file, text);
    snprintf(text, sizeof text, "%lld", clock_ns());   /* again, without the cost of the file */
    int fd = open(file, O_WRONLY);
    if (write(fd, text, strlen(text)) < 0)
        die(file);
    _exit(0);
}

static int reap(const char *directory, char **argv)
{
    char path[PATH_MAX], line[65536];
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t main_child = fork(), gone;
    if (!main_child) {
        execvp(argv[0], argv);
        die(argv[0]);
    }
    while ((gone = waitpid(-1, NULL, 0)) != main_child)
        if (gone < 0)
            die("waitpid");
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    for (;;) {
        int fd = open(path, O_RDONLY);
        ssize_t size = read(fd, line, sizeof line - 1);
        close(fd);
        if (size <= 0)
            break;
        line[size] = 0;
        for (char *at = line, *end; *at; at = end) {
            long pid = strtol(at, &end, 10);
            if (end == at)
                break;
            kill(pid, SIGKILL);
        }
        if (waitpid(-1, NULL, 0) < 0)
            break;
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
        die("a child is left");
    snprintf(path, sizeof path, "%s/cleanup.json", directory);
    put(path, "{\"cleanup_confirmed\": true}\n");
    return 0;
}

static int watch(const char *directory, char **names)
{
    char buffer[65536] __attribute__((aligned(8)));
    int fd = inotify_init1(IN_CLOEXEC);
    if (inotify_add_watch(fd, directory, IN_MOVED_TO | IN_CREATE) < 0)
        die(directory);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        ssize_t size = read(fd, buffer, sizeof buffer);
        ns at = clock_ns();
        for (char *p = buffer; p < buffer + size;) {
            struct inotify_event *event = (void *)p;
            for (int i = 0; names[i]; i++)
                if (event->len && !strcmp(event->name, names[i])) {
                    printf("%s %lld\n", names[i], at);
                    fflush(stdout);
                    if (!names[i + 1])
                        return 0;
                }
            p += sizeof *event + event->len;
        }
    }
}

static int flood(const char *file, long long bytes, long line)
{
    size_t size = line ? (1 << 18) / line * line : 1 << 18;
    char *block = malloc(size), text[80];
    static const char head[] = "{\"type\":\"item.completed\",\"item\":{\"id\":\"item_1\",\"type\":\"command_execution\",\"n\":1.50,\"text\":\"";
    memset(block, 'a', size);
    for (size_t at = 0; line && at < size; at += line) {
        memcpy(block + at, head, sizeof head - 1);
        memcpy(block + at + line - 4, "\"}}\n", 4);
        for (long i = sizeof head + 60; i < line - 8; i += 61)      /* escapes, as real output has them */
            memcpy(block + at + i, "\\n", 2);
    }
    until_asleep(getppid());
    ns start = clock_ns();
    if (!line && write(1, head, sizeof head - 1) < 0)
        die("write");
    for (long long left = bytes; left > 0;) {
        size_t part = left < (long long)size ? (size_t)(line ? (left + line - 1) / line * line : left) : size;
        for (size_t done = 0; done < part;) {
            ssize_t put_now = write(1, block + done, part - done);
            if (put_now < 0)
                die("write");
            done += put_now;
        }
        left -= part;
    }
    if (!line && write(1, "\"}}\n", 4) < 0)
        die("write");
    snprintf(text, sizeof text, "%lld %lld", start, clock_ns());
    put(file, text);
    return 0;
}

static void hold(const char *file)
{
    char text[4096];
    const char *url = getenv("SANDBOX_WORKER_MODEL_URL"), *token = getenv("SANDBOX_WORKER_TOKEN");
    snprintf(text, sizeof text, "%s %s", url ? url : "-", token ? token : "-");
    put(file, text);
    for (;;)
        pause();
}

static int codex(void)
{
    char path[PATH_MAX], text[40];
    const char *home = getenv("CODEX_HOME"), *rollout = getenv("BENCH_ROLLOUT"), *stamp = getenv("BENCH_STAMP");
    static const char *parts[] = {"/sessions", "/2026", "/01", "/02"};
    struct stat info;
    if (!home || !rollout || !stamp)
        return 2;
    strcpy(path, home);
    for (int i = 0; i < 4; i++)
        mkdir(strcat(path, parts[i]), 0700);
    strcat(path, "/rollout-2026-01-02T03-04-05-00000000-0000-7000-8000-000000000001.jsonl");
    int in = open(rollout, O_RDONLY), out = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (in < 0 || out < 0 || fstat(in, &info))
        die(path);
    for (off_t done = 0; done < info.st_size;)
        if (sendfile(out, in, &done, info.st_size - done) <= 0)
            die("sendfile");
    close(out);
    until_asleep(getppid());
    printf("{\"type\":\"thread.started\",\"thread_id\":\"00000000-0000-7000-8000-000000000001\"}\n{\"type\":\"turn.started\"}\n"
           "{\"type\":\"item.completed\",\"item\":{\"id\":\"item_9\",\"type\":\"agent_message\",\"text\":\"done\"}}\n"
           "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":10,\"cached_input_tokens\":0,\"output_tokens\":5}}\n");
    fflush(stdout);
    put(stamp, "");
    snprintf(text, sizeof text, "%lld", clock_ns());
    int fd = open(stamp, O_WRONLY);
    if (write(fd, text, strlen(text)) < 0)
        die(stamp);
    _exit(0);
}

int main(int argc, char **argv)
{
    ns first = clock_ns();
    char text[40];
    if (!strcmp(basename(argv[0]), "codex"))
        return codex();
    if (argc < 3)
        return 2;
    if (!strcmp(argv[1], "now")) {
        snprintf(text, sizeof text, "%lld", first);
        put(argv[2], text);
        return 0;
    }
    if (!strcmp(argv[1], "sleep"))
        return usleep(atoi(argv[2]) * 1000) != 0;
    if (!strcmp(argv[1], "time") && argc > 4)
        return run_timed(argv + 2);
    if (!strcmp(argv[1], "leave") && argc == 5)
        return leave(argv[2], !strcmp(argv[3], "chain"), atoi(argv[4]), !strcmp(argv[3], "at-once"));
    if (!strcmp(argv[1], "reap") && argc > 3)
        return reap(argv[2], argv + 3);
    if (!strcmp(argv[1], "watch") && argc > 3)
        return watch(argv[2], argv + 3);
    if (!strcmp(argv[1], "flood") && argc == 5)
        return flood(argv[2], atoll(argv[3]), atol(argv[4]));
    if (!strcmp(argv[1], "hold"))
        hold(argv[2]);
    return 2;
}
