//! Where sockets lie: the node's, and the folders of daemons that users start for themselves.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The longest path a Unix socket may have.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Name of a user's socket in its folder.
pub const SOCKET_NAME: &str = "gpuquota.sock";
/// A longer runtime folder leaves no room for the socket of a simulated machine.
const RUNTIME_BYTES_MAX: usize = SOCKET_PATH_BYTES_MAX - "/gpuquota/sim-0123456789abcdef/gpuquota-admin.sock".len();

/// The socket for administrators beside the one for everybody: `-admin` before `.sock`.
pub fn admin_socket(socket: &Path) -> PathBuf {
    let text = socket.as_os_str().to_string_lossy();
    PathBuf::from(match text.strip_suffix(".sock") {
        Some(stem) => format!("{stem}-admin.sock"),
        None => format!("{text}-admin"),
    })
}

/// The lock that keeps a second daemon from the same socket.
pub fn lock_file(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// The folder of user `uid`'s own daemons: in the runtime folder where there is one, else in `/tmp`.
pub fn user_folder(runtime: Option<&str>, uid: u32) -> PathBuf {
    match runtime.filter(|folder| folder.starts_with('/') && folder.len() <= RUNTIME_BYTES_MAX) {
        Some(folder) => PathBuf::from(folder).join("gpuquota"),
        None => PathBuf::from(format!("/tmp/gpuquota-{uid}")),
    }
}

/// The folder in `user_folder` of the daemon over one simulated machine.
///
/// `state` is a state file that was asked for by name: another file is another machine.
pub fn simulated_folder(user_folder: &Path, machine: &str, state: Option<&str>) -> PathBuf {
    let name: String = machine.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '+' }).collect();
    let folder = user_folder.join(format!("sim-{name}"));
    if state.is_none() && folder.join(SOCKET_NAME).as_os_str().len() + "-admin".len() <= SOCKET_PATH_BYTES_MAX {
        return folder;
    }
    user_folder.join(format!("sim-{:016x}", fingerprint(&[machine, state.unwrap_or_default()])))
}

/// FNV-1a: the same in every process and version.
fn fingerprint(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Makes `folder` a folder that only this user can use.
///
/// # Errors
/// When it can't be made, or is somebody else's: `/tmp` is everybody's.
pub fn make_private(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    check_private(folder)
}

/// Checks that only this user can use `folder`.
///
/// # Errors
/// When it isn't there, or somebody else could have put things into it.
pub fn check_private(folder: &Path) -> io::Result<()> {
    let data = std::fs::symlink_metadata(folder)?;
    let own = rustix::process::geteuid().as_raw();
    if !data.is_dir() || data.uid() != own || data.mode() & 0o077 != 0 {
        let text = format!("{} must be a folder of yours with mode 0700", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_have_their_places() {
        assert_eq!(admin_socket(Path::new("/run/a/gpuquota.sock")), Path::new("/run/a/gpuquota-admin.sock"));
        assert_eq!(admin_socket(Path::new("/run/a/other")), Path::new("/run/a/other-admin"));
        assert_eq!(lock_file(Path::new("/run/a.sock")), Path::new("/run/a.sock.lock"));
        assert_eq!(user_folder(Some("/run/user/7"), 7), Path::new("/run/user/7/gpuquota"));
        assert_eq!(user_folder(Some("relative"), 7), Path::new("/tmp/gpuquota-7"));
        assert_eq!(user_folder(None, 7), Path::new("/tmp/gpuquota-7"));
    }

    #[test]
    fn simulated_machines_have_folders_of_their_own_that_fit_a_socket() {
        let user = Path::new("/run/user/1000/gpuquota");
        assert_eq!(simulated_folder(user, "2xa100-80gb", None), user.join("sim-2xa100-80gb"));
        let long = "a100-80gb,".repeat(50);
        let folder = simulated_folder(user, &long, None);
        assert!(folder.join("gpuquota-admin.sock").as_os_str().len() <= SOCKET_PATH_BYTES_MAX);
        assert_ne!(folder, simulated_folder(user, &"h100-80gb,".repeat(50), None));
        assert_ne!(simulated_folder(user, "l4-24gb", None), simulated_folder(user, "l4-24gb", Some("/tmp/state")));
    }
}
