/* A scripted model that is never the bottleneck: one blocking thread per connection, answers made beforehand.
 *
 *   upstream FILE      listens on 127.0.0.1, writes the port to FILE
 *
 * What is answered stands in the request body as "bench":"KIND A B" within its first 256 bytes, or in the path:
 *   json             a Responses object of 4 KiB (also when nothing stands there)
 *   stream N USEC    N events, USEC apart, each with the clock at its sending, one write and one chunk per event
 *   large COUNT BYTES    COUNT events of BYTES each, one chunk per event
 *   events BYTES     an event stream of BYTES, 230-byte events, 64 of them in a chunk
 *   GET .../plain/BYTES    a body of BYTES with Content-Length
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENT 230
#define PER_CHUNK 64
#define DELTA "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,"
#define CREATED "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"status\":\"in_progress\"}}\n\n"
#define COMPLETED "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"status\":\"completed\"," \
    "\"usage\":{\"input_tokens\":10,\"input_tokens_details\":{\"cached_tokens\":0},\"output_tokens\":5," \
    "\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":15}}}\n\n"
#define STREAM_HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

static char json[8192], bulk[PER_CHUNK * EVENT + 64], plain[1 << 18];
static size_t json_size, bulk_size;

static int send_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return -1;
        data += sent, size -= sent;
    }
    return 0;
}

static int send_chunk(int fd, const char *data)
{
    char out[4096];
    return send_all(fd, out, snprintf(out, sizeof out, "%zx\r\n%s\r\n", strlen(data), data));
}

static long long clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int stream(int fd, long count, long usec)
{
    char event[1024];
    long long next = clock_ns();
    if (send_all(fd, STREAM_HEAD, strlen(STREAM_HEAD)) || send_chunk(fd, CREATED))
        return -1;
    for (long i = 0; i < count; i++) {
        next += usec * 1000;
        struct timespec until = {next / 1000000000, next % 1000000000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        snprintf(event, sizeof event, DELTA "\"delta\":\"some words of text\",\"sequence_number\":%ld,\"at\":%lld}\n\n", i, clock_ns());
        if (send_chunk(fd, event))
            return -1;
    }
    return send_chunk(fd, COMPLETED) || send_all(fd, "0\r\n\r\n", 5);
}

static int events(int fd, long long bytes)
{
    if (send_all(fd, STREAM_HEAD, strlen(STREAM_HEAD)) || send_chunk(fd, CREATED))
        return -1;
    for (; bytes > 0; bytes -= PER_CHUNK * EVENT)
        if (send_all(fd, bulk, bulk_size))
            return -1;
    return send_chunk(fd, COMPLETED) || send_all(fd, "0\r\n\r\n", 5);
}

static int large(int fd, long count, long bytes)
{
    char *event = malloc(bytes + 64);
    size_t start = sprintf(event, "%lx\r\n", bytes), at = start + sprintf(event + start, DELTA "\"delta\":\"");
    memset(event + at, 'w', start + bytes - 4 - at);
    memcpy(event + start + bytes - 4, "\"}\n\n\r\n", 6);
    int failed = send_all(fd, STREAM_HEAD, strlen(STREAM_HEAD)) || send_chunk(fd, CREATED);
    while (!failed && count--)
        failed = send_all(fd, event, start + bytes + 2);
    free(event);
    return failed || send_chunk(fd, COMPLETED) || send_all(fd, "0\r\n\r\n", 5);
}

static int plain_body(int fd, long long bytes)
{
    char head[200];
    if (send_all(fd, head, snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
                                    "Content-Length: %lld\r\n\r\n", bytes)))
        return -1;
    for (; bytes > 0; bytes -= sizeof plain)
        if (send_all(fd, plain, bytes < (long long)sizeof plain ? (size_t)bytes : sizeof plain))
            return -1;
    return 0;
}

static int answer(int fd, const char *head, const char *body)
{
    long long a = 0;
    long b = 0;
    const char *asked = strstr(body, "\"bench\":\""), *path = strstr(head, "/plain/");
    if (path && path < strstr(head, "\r\n"))
        return plain_body(fd, atoll(path + 7));
    if (asked && sscanf(asked + 9, "stream %lld %ld", &a, &b) == 2)
        return stream(fd, a, b);
    if (asked && sscanf(asked + 9, "large %lld %ld", &a, &b) == 2)
        return large(fd, a, b);
    if (asked && sscanf(asked + 9, "events %lld", &a) == 1)
        return events(fd, a);
    return send_all(fd, json, json_size);
}

static void *serve(void *argument)
{
    int fd = (int)(long)argument, one = 1;
    size_t room = 1 << 16, have = 0;
    char *buffer = malloc(room + 1), start[257];
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (;;) {
        char *end;
        buffer[have] = 0;
        while (!(end = memmem(buffer, have, "\r\n\r\n", 4))) {
            ssize_t got = recv(fd, buffer + have, room - have, 0);
            if (got <= 0)
                goto done;
            buffer[have += got] = 0;
        }
        *end = 0;
        char *length = strcasestr(buffer, "\r\ncontent-length:");
        int chunked = strcasestr(buffer, "\r\ntransfer-encoding:") != NULL;
        size_t body = length ? strtoul(length + 17, NULL, 10) : 0, seen = have - (end + 4 - buffer);
        size_t first = seen < 256 ? seen : 256;
        memcpy(start, end + 4, first);
        char tail[8] = "";
        size_t last = seen < 5 ? seen : 5;
        memcpy(tail, end + 4 + seen - last, last);
        while (chunked ? memcmp(tail, "0\r\n\r\n", 5) : seen < body) {
            char part[1 << 16];
            ssize_t got = recv(fd, part, sizeof part, 0);
            if (got <= 0)
                goto done;
            if (first < 256) {
                size_t more = (size_t)got < 256 - first ? (size_t)got : 256 - first;
                memcpy(start + first, part, more);
                first += more;
            }
            for (ssize_t i = got > 5 ? got - 5 : 0; i < got; i++) {
                memmove(tail, tail + 1, 4);
                tail[4] = part[i];
            }
            seen += got;
        }
        start[first] = 0;
        if (answer(fd, buffer, start))
            goto done;
        have = 0;                     /* no client here pipelines */
    }
done:
    close(fd);
    free(buffer);
    return NULL;
}

static void prepare(void)
{
    char body[4097], text[3700];
    memset(text, 'w', sizeof text - 1);
    text[sizeof text - 1] = 0;
    int size = snprintf(body, sizeof body, "{\"id\":\"resp_1\",\"object\":\"response\",\"status\":\"completed\",\"model\":\"m\",\"output\":[{\"type\":"
                        "\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"%s\"}]}],\"usage\":"
                        "{\"input_tokens\":10,\"output_tokens\":5,\"total_tokens\":15}}", text);
    json_size = snprintf(json, sizeof json, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", size, body);
    size_t at = sprintf(bulk, "%x\r\n", PER_CHUNK * EVENT);
    for (int i = 0; i < PER_CHUNK; i++, at += EVENT) {
        memset(bulk + at, 'w', EVENT);
        int head = sprintf(bulk + at, DELTA "\"delta\":\"");
        bulk[at + head] = 'w';
        memcpy(bulk + at + EVENT - 26, "\",\"sequence_number\":100}\n\n", 26);
    }
    memcpy(bulk + at, "\r\n", 2);
    bulk_size = at + 2;
    memset(plain, 'p', sizeof plain);
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    pthread_attr_t attributes;
    pthread_t thread;
    char temporary[4096];
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (argc < 2 || bind(listener, (void *)&address, size) || listen(listener, 512) || getsockname(listener, (void *)&address, &size))
        return 1;
    signal(SIGPIPE, SIG_IGN);
    prepare();
    snprintf(temporary, sizeof temporary, "%s.tmp", argv[1]);
    FILE *file = fopen(temporary, "w");
    fprintf(file, "%d", ntohs(address.sin_port));
    fclose(file);
    rename(temporary, argv[1]);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 1 << 18);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0)
            pthread_create(&thread, &attributes, serve, (void *)(long)fd);
    }
}
