//! Packets with descriptors over a Unix socket (`SOCK_SEQPACKET`), every wait with a deadline.
#![allow(unsafe_code)]

use crate::message::PACKET_BYTES_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Descriptors that one packet may carry.
pub const DESCRIPTORS_MAX: usize = 4;
/// Clients that may wait for the daemon to accept them.
const BACKLOG: libc::c_int = 1024;

/// One end of a connection.
#[derive(Debug)]
pub struct Connection(OwnedFd);

/// Why a packet could not be had.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The other side is gone.
    #[error("the other side closed the connection")]
    Closed,
    /// Nothing to read or no room to write, on a connection that doesn't wait.
    #[error("not ready")]
    WouldBlock,
    /// The deadline passed.
    #[error("no answer in time")]
    TimedOut,
    /// The packet does not fit [`PACKET_BYTES_MAX`].
    #[error("the packet is larger than {PACKET_BYTES_MAX} bytes")]
    TooLarge,
    /// Not the JSON that was expected.
    #[error("the packet can't be read: {0}")]
    Malformed(String),
    /// What the kernel says.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Connection {
    /// Connects to the daemon at `path`.
    ///
    /// # Errors
    /// What the kernel says; `TimedOut` when the daemon doesn't accept until `deadline`.
    pub fn connect(path: &Path, deadline: Instant) -> Result<Self, WireError> {
        let address = Address::new(path)?;
        let socket = new_socket()?;
        let mut pause = Duration::from_millis(1);
        loop {
            // SAFETY: the address outlives the call and its length is its own.
            if unsafe { libc::connect(socket.as_raw_fd(), address.raw(), address.length) } == 0 {
                return Ok(Self(socket));
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                // A full backlog says EAGAIN at once, whatever the deadline.
                Some(libc::EAGAIN | libc::EINTR) if Instant::now() < deadline => std::thread::sleep(pause),
                Some(libc::EAGAIN) => return Err(WireError::TimedOut),
                _ => return Err(error.into()),
            }
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// A connected pair, for tests and for handing one end to a child.
    pub fn pair() -> io::Result<(Self, Self)> {
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the kernel fills two descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: two fresh descriptors that nobody else owns.
        Ok(unsafe { (Self(OwnedFd::from_raw_fd(ends[0])), Self(OwnedFd::from_raw_fd(ends[1]))) })
    }

    /// Sends one packet now, with copies of `descriptors`.
    ///
    /// # Errors
    /// [`WireError::WouldBlock`] when the other side reads too slowly.
    pub fn send<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> Result<(), WireError> {
        let packet = serde_json::to_vec(message).map_err(|error| WireError::Malformed(error.to_string()))?;
        if packet.len() > PACKET_BYTES_MAX || descriptors.len() > DESCRIPTORS_MAX {
            return Err(WireError::TooLarge);
        }
        let mut part = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
        let mut control = Control::new();
        let header = control.header(&mut part, descriptors);
        // SAFETY: the header points to `part`, `packet` and `control`, which all outlive the call.
        let sent = unsafe { libc::sendmsg(self.0.as_raw_fd(), &header, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
        if sent >= 0 { Ok(()) } else { Err(io::Error::last_os_error().into_wire()) }
    }

    /// Takes one packet now, with its descriptors.
    ///
    /// # Errors
    /// [`WireError::WouldBlock`] when there is none.
    pub fn receive<T: DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>), WireError> {
        let mut packet = vec![0u8; PACKET_BYTES_MAX + 1];
        let mut part = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() };
        let mut control = Control::new();
        let mut header = control.header(&mut part, &[]);
        header.msg_control = control.bytes.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control.bytes) as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the header points to `part`, `packet` and `control`, which all outlive the call.
        let length = unsafe { libc::recvmsg(self.0.as_raw_fd(), &mut header, flags) };
        if length < 0 {
            return Err(io::Error::last_os_error().into_wire());
        }
        let descriptors = take_descriptors(&header);
        match length as usize {
            0 => Err(WireError::Closed),
            length if length > PACKET_BYTES_MAX || header.msg_flags & libc::MSG_TRUNC != 0 => Err(WireError::TooLarge),
            length => serde_json::from_slice(&packet[..length])
                .map(|message| (message, descriptors))
                .map_err(|error| WireError::Malformed(error.to_string())),
        }
    }

    /// Waits for one packet until `deadline`.
    pub fn receive_until<T: DeserializeOwned>(&self, deadline: Instant) -> Result<(T, Vec<OwnedFd>), WireError> {
        loop {
            match self.receive() {
                Err(WireError::WouldBlock) => {}
                // Who closes without having read what we sent may have said why before; the kernel tells the former first.
                Err(WireError::Closed) => return self.receive(),
                other => return other,
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(WireError::TimedOut);
            }
            let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let left_ms = left.as_millis().saturating_add(1).min(1 << 30) as libc::c_int;
            // SAFETY: one valid entry.
            unsafe { libc::poll(&mut poll, 1, left_ms) };
        }
    }

    /// Sends a request and waits for its answer.
    pub fn ask<Q: Serialize, A: DeserializeOwned>(
        &self,
        request: &Q,
        deadline: Instant,
    ) -> Result<(A, Vec<OwnedFd>), WireError> {
        self.request(request)?;
        self.receive_until(deadline)
    }

    /// Sends a request that is answered. That the other side has closed is no error yet: it may have said why, which is
    /// what is received next.
    ///
    /// # Errors
    /// As those of [`Connection::send`].
    pub fn request<Q: Serialize>(&self, request: &Q) -> Result<(), WireError> {
        match self.send(request, &[]) {
            Err(WireError::Closed) => Ok(()),
            sent => sent,
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Connection {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

/// A listening socket at `path`, with permission bits `mode`, in the place of one that may be there.
///
/// Whoever finds it under its name is let in: it gets that only once it listens. Until then it has another one beside it, the
/// same each time, so that what is left of one that was killed goes with the next. That two don't do so at once is the
/// callers' business.
///
/// # Errors
/// What the kernel says. The path is as it was then.
pub fn listen(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    // What is said of a long path is about the one that was asked for.
    Address::new(path)?;
    only_a_socket(path)?;
    let fresh = fresh_name(path);
    if only_a_socket(&fresh)? {
        std::fs::remove_file(&fresh)?;
    }
    let listening = listen_under(&fresh, mode).and_then(|socket| {
        std::fs::rename(&fresh, path)?;
        Ok(socket)
    });
    if listening.is_err() {
        let _ = std::fs::remove_file(&fresh);
    }
    listening
}

/// What a socket is called while it doesn't listen yet.
fn fresh_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

/// True when there is a socket, and false when there is nothing. Anything else is somebody's, and left alone.
fn only_a_socket(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(data) if data.file_type().is_socket() => Ok(true),
        Ok(_) => {
            let text = format!("there is something at {} that is no socket", path.display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn listen_under(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    // Held until it is bound, since the name may go by way of it.
    let (address, _folder) = Address::of_any_length(path)?;
    let socket = new_socket()?;
    // SAFETY: the address outlives the call and its length is its own.
    if unsafe { libc::bind(socket.as_raw_fd(), address.raw(), address.length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode))?;
    // SAFETY: plain system call on our own descriptor.
    if unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

/// Takes the next waiting client; `WouldBlock` when there is none.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Connection> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: null address: we ask for credentials instead.
    let fd = unsafe { libc::accept4(listener.as_raw_fd(), core::ptr::null_mut(), core::ptr::null_mut(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(Connection(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Who is at the other end, as the kernel saw it when it connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Pid in the caller's pid namespace; 0 when it has none there.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Asks the kernel who is at the other end.
pub fn credentials(connection: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel fills at most `length` bytes of `peer`.
    let result = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials { pid: u32::try_from(peer.pid).unwrap_or(0), uid: peer.uid, gid: peer.gid })
}

fn new_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain system call.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

struct Address {
    inner: libc::sockaddr_un,
    length: libc::socklen_t,
}

impl Address {
    fn new(path: &Path) -> io::Result<Self> {
        // SAFETY: plain data, for which all zero is valid.
        let mut inner: libc::sockaddr_un = unsafe { core::mem::zeroed() };
        inner.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let bytes = path.as_os_str().as_bytes();
        if bytes.is_empty() || bytes.len() >= inner.sun_path.len() || bytes.contains(&0) {
            let longest = inner.sun_path.len() - 1;
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a socket's path has 1 to {longest} bytes"),
            ));
        }
        for (to, from) in inner.sun_path.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        Ok(Self { inner, length: size_of::<libc::sockaddr_un>() as libc::socklen_t })
    }

    /// That of a path which may be a little too long for one: then by way of its folder, which is open for as long as what
    /// comes with it.
    fn of_any_length(path: &Path) -> io::Result<(Self, Option<File>)> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok((Self::new(path)?, None)) };
        match Self::new(path) {
            Ok(address) => Ok((address, None)),
            Err(_) => {
                let folder = File::open(folder)?;
                let through = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
                Ok((Self::new(&through)?, Some(folder)))
            }
        }
    }

    fn raw(&self) -> *const libc::sockaddr {
        (&raw const self.inner).cast()
    }
}

/// Room for the descriptors of one packet, aligned for `cmsghdr`.
struct Control {
    bytes: [MaybeUninit<u64>; 8],
}

impl Control {
    fn new() -> Self {
        Self { bytes: [MaybeUninit::zeroed(); 8] }
    }

    fn header(&mut self, part: &mut libc::iovec, descriptors: &[BorrowedFd<'_>]) -> libc::msghdr {
        // SAFETY: plain data, for which all zero is valid.
        let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
        header.msg_iov = part;
        header.msg_iovlen = 1;
        if descriptors.is_empty() {
            return header;
        }
        let bytes = size_of_val(descriptors) as libc::c_uint;
        header.msg_control = self.bytes.as_mut_ptr().cast();
        // SAFETY: arithmetic only.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(bytes) } as _;
        // SAFETY: the control buffer is set, large enough for DESCRIPTORS_MAX, and aligned.
        let message = unsafe { &mut *libc::CMSG_FIRSTHDR(&header) };
        message.cmsg_level = libc::SOL_SOCKET;
        message.cmsg_type = libc::SCM_RIGHTS;
        // SAFETY: arithmetic only.
        message.cmsg_len = unsafe { libc::CMSG_LEN(bytes) } as _;
        // SAFETY: the data of the message lies within the control buffer.
        let data = unsafe { libc::CMSG_DATA(message) }.cast::<libc::c_int>();
        for (index, descriptor) in descriptors.iter().enumerate() {
            // SAFETY: `descriptors` has at most DESCRIPTORS_MAX entries, for which CMSG_SPACE made room.
            unsafe { data.add(index).write_unaligned(descriptor.as_raw_fd()) };
        }
        header
    }
}

fn take_descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut taken = Vec::new();
    // SAFETY: the kernel filled the header; the macros walk within msg_controllen.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !message.is_null() {
        // SAFETY: not null, and within the control buffer.
        let entry = unsafe { &*message };
        if entry.cmsg_level == libc::SOL_SOCKET && entry.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: arithmetic only.
            let head = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = (entry.cmsg_len as usize).saturating_sub(head) / size_of::<libc::c_int>();
            // SAFETY: the data follows the header within cmsg_len.
            let data = unsafe { libc::CMSG_DATA(message) }.cast::<libc::c_int>();
            for index in 0..count {
                // SAFETY: `count` descriptors lie there.
                let fd = unsafe { data.add(index).read_unaligned() };
                // SAFETY: the kernel made it for us; nobody else owns it.
                taken.push(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
        // SAFETY: as for the first header.
        message = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
    taken
}

trait IntoWire {
    fn into_wire(self) -> WireError;
}

impl IntoWire for io::Error {
    fn into_wire(self) -> WireError {
        match self.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => WireError::WouldBlock,
            Some(libc::EPIPE | libc::ECONNRESET) => WireError::Closed,
            _ => WireError::Io(self),
        }
    }
}

#[cfg(test)]
mod tests;
