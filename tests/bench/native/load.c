/* A model client that is never the bottleneck: one blocking thread per connection.
 *
 *   load rate   PORT PATH TOKEN CONNECTIONS SECONDS BODY_BYTES PAUSE_US   requests on kept connections, one after the other
 *   load stream PORT PATH TOKEN "stream N USEC"                   delay of each event against the clock that it carries
 *   load bulk   PORT PATH TOKEN "events BYTES" | plain            one answer, as fast as it comes
 *
 * Prints one JSON object. All answers are read whole (Content-Length, chunked, or until the end); anything but a 200 ends it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef long long ns;
enum { SIZE, DATA, DATA_END, TRAILER };

struct answer {                 /* the state of reading one */
    int chunked, state, line, done;
    ns left, bytes;
};

static int port;
static char *request;
static size_t request_size;
static ns stop_at, begin_at;
static long pause_us;

static ns clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what, const char *detail)
{
    printf("{\"error\": \"%s %.60s\"}\n", what, detail);
    fflush(stdout);
    _exit(1);
}

static int dial(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (connect(fd, (void *)&address, sizeof address))
        fail("connect", "");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void send_request(int fd)
{
    for (size_t done = 0; done < request_size;) {
        ssize_t sent = send(fd, request + done, request_size - done, MSG_NOSIGNAL);
        if (sent <= 0)
            fail("send", "");
        done += sent;
    }
}

/* The payload bytes of `data` are counted; sets done at the end of the answer. */
static void feed(struct answer *a, const char *data, size_t size)
{
    if (!a->chunked) {
        a->bytes += size;
        a->done = a->left >= 0 && a->bytes >= a->left;
        return;
    }
    for (size_t i = 0; i < size && !a->done;) {
        char c = data[i];
        if (a->state == DATA) {
            ns part = a->left < (ns)(size - i) ? a->left : (ns)(size - i);
            a->bytes += part, a->left -= part, i += part;
            if (!a->left)
                a->state = DATA_END;
            continue;
        }
        i++;
        if (a->state == DATA_END) {
            if (c == '\n')
                a->state = SIZE, a->left = 0, a->line = 0;
        } else if (a->state == SIZE) {
            if (c == '\n')
                a->state = a->left ? DATA : TRAILER, a->line = 0;
            else if (c == ';')
                a->line = 1;
            else if (c != '\r' && !a->line)
                a->left = a->left * 16 + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
        } else if (c == '\n') {
            if (!a->line)
                a->done = 1;
            a->line = 0;
        } else if (c != '\r')
            a->line++;
    }
}

/* Send, read the head; what came with it has been fed. `seen` is called with every piece of the body as it lies on the wire. */
static void exchange(int fd, char *buffer, size_t room, struct answer *a, void (*seen)(const char *, size_t))
{
    size_t have = 0;
    char *end;
    ssize_t got;
    send_request(fd);
    do {
        got = recv(fd, buffer + have, room - have - 1, 0);
        if (got <= 0)
            fail("no answer", "");
        buffer[have += got] = 0;
    } while (!(end = strstr(buffer, "\r\n\r\n")));
    *end = 0;
    if (strncmp(buffer + 8, " 200", 4))
        fail("answer", strtok(buffer, "\r\n"));
    char *length = strcasestr(buffer, "\r\ncontent-length:");
    memset(a, 0, sizeof *a);
    a->chunked = strcasestr(buffer, "\r\ntransfer-encoding: chunked") != NULL;
    a->left = a->chunked ? 0 : length ? atoll(length + 17) : -1;
    got = have - (end + 4 - buffer);
    memmove(buffer, end + 4, got);
    for (;;) {
        if (seen)
            seen(buffer, got);
        feed(a, buffer, got);
        if (a->done)
            return;
        got = recv(fd, buffer, room, 0);
        if (got <= 0) {
            if (a->left < 0)
                return;
            fail("cut answer", "");
        }
    }
}

struct worker { pthread_t thread; ns *took; long count, room, sent; };

static void *requests(void *argument)
{
    struct worker *w = argument;
    struct answer a;
    char buffer[65536];
    int fd = dial();
    w->room = 1 << 12;
    w->took = malloc(w->room * sizeof(ns));
    for (;;) {
        ns start = clock_ns();
        if (start > stop_at)
            break;
        exchange(fd, buffer, sizeof buffer, &a, NULL);
        ns end = clock_ns();
        w->sent++;
        if (pause_us)
            usleep(pause_us);
        if (start < begin_at || end > stop_at)
            continue;
        if (w->count == w->room)
            w->took = realloc(w->took, (w->room *= 2) * sizeof(ns));
        w->took[w->count++] = end - start;
    }
    close(fd);
    return NULL;
}

static int compare(const void *a, const void *b)
{
    return (*(ns *)a > *(ns *)b) - (*(ns *)a < *(ns *)b);
}

static void print_quantiles(ns *values, long count)
{
    qsort(values, count, sizeof(ns), compare);
    printf("\"n\": %ld, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f", count, values[count / 2] / 1e3,
           values[(long)(count * 0.99)] / 1e3, values[count - 1] / 1e3);
}

static int rate(int connections, double seconds)
{
    struct worker *all = calloc(connections, sizeof *all);
    pthread_attr_t attributes;
    ns *values;
    long count = 0, at = 0, sent = 0;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 18);
    begin_at = clock_ns() + (ns)(seconds * 0.2e9);       /* connections and threads first have to be there */
    stop_at = begin_at + (ns)(seconds * 1e9);
    for (int i = 0; i < connections; i++)
        pthread_create(&all[i].thread, &attributes, requests, &all[i]);
    for (int i = 0; i < connections; i++) {
        pthread_join(all[i].thread, NULL);
        count += all[i].count;
        sent += all[i].sent;
    }
    if (!count)
        fail("no request was answered", "");
    values = malloc(count * sizeof(ns));
    for (int i = 0; i < connections; i++) {
        memcpy(values + at, all[i].took, all[i].count * sizeof(ns));
        at += all[i].count;
    }
    printf("{\"per_s\": %.1f, \"sent\": %ld, ", count / seconds, sent);
    print_quantiles(values, count);
    printf("}\n");
    return 0;
}

static char *kept;
static size_t kept_size, looked_at;
static ns delays[100000];
static long delay_count;

static void look_for_clocks(const char *data, size_t size)
{
    ns now = clock_ns();
    memcpy(kept + kept_size, data, size);
    kept[kept_size += size] = 0;
    for (char *at; (at = strstr(kept + looked_at, "\"at\":")) && strchr(at, '}') && delay_count < 100000;) {
        delays[delay_count++] = now - atoll(at + 5);
        looked_at = at + 5 - kept;
    }
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 2;
    struct answer a;
    int rated = !strcmp(argv[1], "rate"), plain = !strcmp(argv[5], "plain");
    size_t body = rated ? atol(argv[7]) : 300, head;
    char *buffer = malloc(1 << 20);
    port = atoi(argv[2]);
    request = malloc(body + 4096);
    head = plain ? sprintf(request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\n\r\n", argv[3], port, argv[4])
        : sprintf(request, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"
                  "User-Agent: load\r\nAccept: */*\r\nContent-Length: %zu\r\n\r\n", argv[3], port, argv[4], body);
    if (!plain) {
        static const char item[] = "{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"";
        char *at = request + head, *end = at + body;
        at += sprintf(at, "{\"model\":\"m\",\"bench\":\"%s\",\"stream\":%s,\"input\":[", rated ? "json" : argv[5],
                      rated ? "false" : "true");
        for (size_t left; (left = end - at); ) {       /* a conversation: items of 400 bytes, the last one takes what is left */
            int last = left < 1000;
            size_t size = last ? left : 400;
            const char *tail = last ? "\"}]}]}" : "\"}]},";
            memset(at, 'q', size);
            memcpy(at, item, sizeof item - 1);
            memcpy(at + sizeof item + 20, "\\n\\\"", 4);
            memcpy(at + size - strlen(tail), tail, strlen(tail));
            at += size;
        }
    }
    request_size = head + (plain ? 0 : body);
    if (rated && argc > 8)
        pause_us = atol(argv[8]);
    if (rated)
        return rate(atoi(argv[5]), atof(argv[6]));
    int fd = dial();
    ns start = clock_ns();
    if (!strcmp(argv[1], "bulk")) {
        exchange(fd, buffer, 1 << 18, &a, NULL);
        double seconds = (clock_ns() - start) / 1e9;
        printf("{\"bytes\": %lld, \"seconds\": %.4f, \"mb_per_s\": %.1f}\n", a.bytes, seconds, a.bytes / seconds / 1e6);
        return 0;
    }
    kept = malloc(64 << 20);
    exchange(fd, buffer, 1 << 18, &a, look_for_clocks);
    if (!delay_count)
        fail("no event", "");
    printf("{\"first_us\": %.1f, ", delays[0] / 1e3);
    print_quantiles(delays, delay_count);
    printf("}\n");
    return 0;
}
