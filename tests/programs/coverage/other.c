/* The other process of a scenario, and the line between both. */
#include "coverage.h"
#include <sys/socket.h>
#include <sys/wait.h>

static int line;

void give(const void *bytes, size_t size) {
    if (write(line, bytes, size) != (ssize_t)size) exit(71);
}

void get(void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t some = read(line, (char *)bytes + done, size - done);
        if (some <= 0) exit(72);
        done += (size_t)some;
    }
}

void your_turn(void) { give("x", 1); }

void wait_turn(void) {
    char x;
    get(&x, 1);
}

void give_file(int file) {
    char byte = 1, room[CMSG_SPACE(sizeof file)] = {0};
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(header), &file, sizeof file);
    if (sendmsg(line, &message, 0) != 1) exit(73);
    close(file);
}

int get_file(void) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int file = -1;
    if (recvmsg(line, &message, 0) != 1) exit(74);
    memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
    return file;
}

pid_t with_other(void (*other)(void)) {
    int ends[2];
    fflush(stdout);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) exit(70);
    pid_t pid = fork();
    line = ends[pid != 0];
    close(ends[pid == 0]);
    if (!pid) {
        other();
        fflush(stdout);
        _exit(0);
    }
    printf("WITH %d\n", (int)pid);
    return pid;
}

void other_ends(pid_t pid) {
    int status = -1;
    waitpid(pid, &status, 0);
    printf("WITHOUT %d\n", (int)pid);
    is("the other process ended well", status, 0);
}
