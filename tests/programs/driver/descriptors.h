/* File descriptors handed from process to process through a socket. */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Hands a descriptor over and closes it here. */
static inline void give_file(int line, int file) {
    char byte = 1, room[CMSG_SPACE(sizeof file)] = {0};
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(header), &file, sizeof file);
    if (sendmsg(line, &message, 0) != 1) exit(73);
    close(file);
}

static inline int get_file(int line) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int file = -1;
    if (recvmsg(line, &message, 0) != 1) exit(74);
    memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
    return file;
}

#endif
