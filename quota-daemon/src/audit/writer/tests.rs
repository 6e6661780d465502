use super::super::file::last_lines;
use super::*;
use std::path::{Path, PathBuf};

const PATIENCE: Duration = Duration::from_secs(10);

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gpuquota-writer-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("writable");
    folder
}

fn rule(path: &Path) -> AuditRule {
    AuditRule { path: path.to_owned(), keep: Duration::from_secs(86_400) }
}

fn line(seq: u64) -> Arc<str> {
    let row = AuditRow { time: "2026".to_owned(), run: "r".to_owned(), seq, event: AuditEvent::default() };
    serde_json::to_string(&row).expect("JSON").into()
}

fn rows(path: &Path) -> Vec<AuditRow> {
    last_lines(path, 100_000).iter().map(|line| serde_json::from_str(line).expect("whole lines")).collect()
}

/// What the numbers of the file say: each event by itself or counted, once, in order.
fn account_for(rows: &[AuditRow]) -> (u64, u64) {
    let (mut at, mut lost) = (0, 0);
    for row in rows {
        let covers = row.event.lost.unwrap_or(1);
        assert_eq!(row.seq, at + covers, "after {at}");
        lost += row.event.lost.unwrap_or(0);
        at = row.seq;
    }
    (at, lost)
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The disk is full, then it isn't: what the queue held is written, what it didn't is counted.
#[test]
fn a_full_disk_loses_nothing_unseen() {
    let folder = folder("full");
    let path = folder.join("audit.jsonl");
    std::os::unix::fs::symlink("/dev/full", &path).expect("ours");
    let writer = Writer::with_queue(&rule(&path), "r", 0, 16).expect("a thread");
    writer.write(1, line(1));
    // The thread has taken it and failed; from now on the queue fills.
    std::thread::sleep(Duration::from_millis(50));
    for seq in 2..=100 {
        writer.write(seq, line(seq));
    }
    std::fs::remove_file(&path).expect("ours");
    eventually("all are written or counted", || rows(&path).last().is_some_and(|row| row.seq == 100));
    let (_, lost) = account_for(&rows(&path));
    assert!((83..=84).contains(&lost), "{lost}: sixteen waited, and one or two that the thread had");
    let told = rows(&path).into_iter().find(|row| row.event.event == AuditKind::Lost).expect("told");
    assert!(told.event.reason.is_some_and(|reason| reason.contains("No space left")));
    writer.write(101, line(101));
    assert_eq!(writer.finish(101, PATIENCE), 0);
    assert_eq!(account_for(&rows(&path)).0, 101);
    std::fs::remove_dir_all(folder).expect("ours");
}

#[test]
fn an_end_is_not_kept_waiting_by_a_full_disk() {
    let writer = Writer::with_queue(&rule(Path::new("/dev/full")), "r", 5, 4).expect("a thread");
    for seq in 6..=20 {
        writer.write(seq, line(seq));
    }
    let begun = Instant::now();
    assert_eq!(writer.finish(20, PATIENCE), 15);
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
}

/// A writer that is only slow counts what it had no time for.
#[test]
fn what_comes_too_fast_is_counted() {
    let folder = folder("fast");
    let path = folder.join("audit.jsonl");
    let writer = Writer::with_queue(&rule(&path), "r", 0, 1).expect("a thread");
    const MANY: u64 = 20_000;
    for seq in 1..=MANY {
        writer.write(seq, line(seq));
    }
    assert_eq!(writer.finish(MANY, PATIENCE), 0);
    assert_eq!(account_for(&rows(&path)).0, MANY);
    std::fs::remove_dir_all(folder).expect("ours");
}

#[test]
fn another_rule_holds_from_then_on() {
    let folder = folder("rule");
    let (one, two) = (folder.join("one.jsonl"), folder.join("two.jsonl"));
    let writer = Writer::start(&rule(&one), "r", 0).expect("a thread");
    writer.write(1, line(1));
    eventually("the first is written", || rows(&one).len() == 1);
    writer.set_rule(&rule(&two));
    writer.write(2, line(2));
    assert_eq!(writer.finish(2, PATIENCE), 0);
    assert_eq!((rows(&one).len(), rows(&two).len()), (1, 1));
    std::fs::remove_dir_all(folder).expect("ours");
}
