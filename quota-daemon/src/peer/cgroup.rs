//! What a control group says of a process: which container or service it is of, whatever groups it makes within.
//!
//! A container's root may make groups below its own and move its processes between them, so a path is cut behind the outermost
//! container in it: all of its processes have one path, and nobody leaves an account by making a group.

/// Longest path that is kept. Kubernetes' are about 200 characters.
const PATH_BYTES_MAX: usize = 1024;

/// The path by which a process is known, from the text of its `/proc/<pid>/cgroup`: its container's, else its service's, else
/// its group's.
pub(super) fn identity(text: &str) -> String {
    let path = path_of(text);
    let cut = container_end(path).or_else(|| service_end(path)).unwrap_or(path.len());
    super::clean_to(&path[..cut], PATH_BYTES_MAX)
}

/// True when the path is a container's, by how the known engines name theirs.
pub fn is_container(path: &str) -> bool {
    container_end(path).is_some()
}

/// The line that counts. With one hierarchy (version 2) it is the only one. With the old ones, alone or beside it, an engine may
/// use some and leave the others at the root or at its own group: any line that names a container is right, then the unified
/// one, then systemd's own, then the one that says most.
fn path_of(text: &str) -> &str {
    let lines = || text.lines().filter_map(Line::parse);
    let says_something = |line: &Line<'_>| line.path != "/";
    let deepest = lines().max_by_key(|line| (line.path.matches('/').count(), line.path.len()));
    lines()
        .find(|line| is_container(line.path))
        .or_else(|| lines().find(|line| line.controllers.is_empty()).filter(says_something))
        .or_else(|| lines().find(|line| line.controllers == "name=systemd").filter(says_something))
        .or(deepest)
        .map_or("/", |line| line.path)
}

struct Line<'a> {
    controllers: &'a str,
    path: &'a str,
}

impl<'a> Line<'a> {
    /// `number:controllers:path`; the path may hold colons, and is marked when the group is gone.
    fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(3, ':');
        let (_number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        path.starts_with('/').then_some(Self { controllers, path })
    }
}

/// The path's components, each with where it ends.
fn components(path: &str) -> impl Iterator<Item = (&str, usize)> {
    let start = path.as_ptr() as usize;
    path.split('/').filter(|part| !part.is_empty()).map(move |part| (part, part.as_ptr() as usize - start + part.len()))
}

/// Where the outermost container's component ends.
fn container_end(path: &str) -> Option<usize> {
    let mut before = "";
    for (part, end) in components(path) {
        // A pod's own group is a slice, or named by the pod, and holds several containers.
        let is_named = before == "lxc" || part.starts_with("lxc.payload.") || is_machine(part);
        if is_named || (!part.ends_with(".slice") && has_id(part)) {
            return Some(end);
        }
        before = part;
    }
    None
}

/// A machine of systemd-nspawn.
fn is_machine(part: &str) -> bool {
    part.starts_with("systemd-nspawn@") || (part.starts_with("machine-") && part.ends_with(".scope"))
}

/// A container's id is 64 hexadecimal digits, with the engine's words around it.
fn has_id(part: &str) -> bool {
    const ID_DIGITS: usize = 64;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let mut run = 0;
    part.bytes().any(|byte| {
        run = if is_digit(byte) { run + 1 } else { 0 };
        run == ID_DIGITS
    })
}

/// Where the component of a system's service ends; a user's services are the user's to name.
fn service_end(path: &str) -> Option<usize> {
    if path.starts_with("/user.slice/") {
        return None;
    }
    components(path).find(|(part, _)| part.ends_with(".service")).map(|(_, end)| end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4f2d1c0b9a8e7d6c5b4a39281706f5e4d3c2b1a0f9e8d7c6b5a4938271605f4e";
    const POD: &str = "pod0a1b2c3d-1111-2222-3333-444455556666";

    fn check(text: &str, wanted: &str) {
        let text = text.replace("ID", ID).replace("POD", POD);
        let wanted = wanted.replace("ID", ID).replace("POD", POD);
        assert_eq!(identity(&text), wanted, "{text}");
        assert_eq!(is_container(&wanted), wanted.contains(ID) || wanted.contains("lxc") || wanted.contains("machine"));
    }

    /// One line, of version 2: as the engines write it, with both of Kubernetes' drivers.
    #[test]
    fn containers_are_known_by_their_own_group() {
        for (path, wanted) in [
            ("/system.slice/docker-ID.scope", None),
            ("/docker/ID", None),
            ("/docker/ID/init.scope", Some("/docker/ID")),
            ("/system.slice/docker-ID.scope/made/by/its/root", Some("/system.slice/docker-ID.scope")),
            ("/machine.slice/libpod-ID.scope/container", Some("/machine.slice/libpod-ID.scope")),
            ("/machine.slice/libpod_pod_ID.slice/libpod-ID.scope", None),
            (
                "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container",
                Some("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope"),
            ),
            ("/system.slice/nerdctl-ID.scope", None),
            ("/kubepods/burstable/POD/ID", None),
            ("/kubepods/POD/ID/sub", Some("/kubepods/POD/ID")),
            ("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-POD.slice/cri-containerd-ID.scope", None),
            ("/kubepods.slice/kubepods-POD.slice/crio-ID.scope", None),
            (
                "/kubepods.slice/kubepods-POD.slice/docker-ID.scope/x",
                Some("/kubepods.slice/kubepods-POD.slice/docker-ID.scope"),
            ),
            ("/kubepods-besteffort-POD.slice:cri-containerd:ID", None),
            ("/system.slice/containerd.service/kubepods-burstable-POD.slice:cri-containerd:ID", None),
            ("/ecs/0123456789abcdef0123456789abcdef/ID", None),
            ("/lxc/web/system.slice/ssh.service", Some("/lxc/web")),
            ("/lxc.payload.web/init.scope", Some("/lxc.payload.web")),
            ("/machine.slice/machine-box.scope/payload/x.service", Some("/machine.slice/machine-box.scope")),
            // Seen by a daemon in a container of its own, from whose group the path begins.
            ("/../cri-containerd-ID.scope", None),
            ("/../../POD/ID", None),
            // In a container within a container, the outer one's root decides what the inner one is called.
            ("/docker/ID/docker/ID", Some("/docker/ID")),
        ] {
            check(&format!("0::{path}\n"), wanted.unwrap_or(path));
            check(&format!("0::{path} (deleted)\n"), wanted.unwrap_or(path));
        }
    }

    #[test]
    fn services_sessions_and_the_root_are_known_too() {
        for (path, wanted) in [
            ("/system.slice/ollama.service", None),
            ("/system.slice/slurmd.service/step_0/user/task_0", Some("/system.slice/slurmd.service")),
            ("/system.slice/system-vllm.slice/vllm@0.service", None),
            ("/user.slice/user-1000.slice/session-3.scope", None),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal.slice/vte-spawn-1.scope",
                None,
            ),
            ("/", None),
            ("/init.scope", None),
            ("/slurm/uid_1000/job_17/step_0", None),
        ] {
            check(&format!("0::{path}\n"), wanted.unwrap_or(path));
        }
        check("", "/");
        check("no line\n1:x\n", "/");
    }

    /// The old hierarchies, alone and beside the new one: whichever line names the container.
    #[test]
    fn old_hierarchies_name_the_container_in_any_line() {
        for (text, wanted) in [
            ("12:devices:/docker/ID\n11:memory:/docker/ID\n1:name=systemd:/docker/ID\n", "/docker/ID"),
            (
                "11:rdma:/\n9:devices:/kubepods/besteffort/POD/ID\n4:cpu,cpuacct:/kubepods/besteffort/POD/ID\n0::/system.slice/containerd.service\n",
                "/kubepods/besteffort/POD/ID",
            ),
            ("12:pids:/\n11:memory:/system.slice/docker-ID.scope\n0::/\n", "/system.slice/docker-ID.scope"),
            (
                "3:cpuset:/\n2:memory:/user.slice/user-1.slice\n1:name=systemd:/user.slice/user-1.slice/session-2.scope\n0::/user.slice/user-1.slice/session-2.scope\n",
                "/user.slice/user-1.slice/session-2.scope",
            ),
            (
                "5:memory:/user.slice\n1:name=systemd:/user.slice/user-1.slice/session-2.scope\n",
                "/user.slice/user-1.slice/session-2.scope",
            ),
            ("9:name=systemd:/\n5:devices:/\n4:memory:/jobs/a17\n1:cpu:/\n0::/\n", "/jobs/a17"),
            ("2:cpu:/\n1:name=systemd:/\n0::/\n", "/"),
        ] {
            check(text, wanted);
        }
    }

    /// A path is a client's to choose in part: it stays on its line, and its length is bounded.
    #[test]
    fn a_made_up_path_is_bounded() {
        assert!(identity(&format!("0::/{}", "x".repeat(9000))).len() <= PATH_BYTES_MAX);
        assert_eq!(identity("0::/a\u{1b}[2Jb\n"), "/a [2Jb");
        assert!(!is_container(&format!("/{}", &ID[..63])) && !is_container(&format!("/{}.slice", ID)));
    }
}
