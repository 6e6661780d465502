use super::*;
use std::os::unix::fs::PermissionsExt;

/// The 1st of January 2026, noon.
const NOON_MS: u64 = 1_767_268_800_000;
const HOUR_MS: u64 = 3_600_000;

/// A folder of its own, gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("gpuquota-audit-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn rule(&self, hours: u64) -> AuditRule {
        AuditRule { path: self.0.join("audit.jsonl"), keep: Duration::from_secs(hours * 3600) }
    }

    fn names(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.0).expect("made").flatten();
        let mut names: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).expect("there")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn line(number: u32) -> String {
    format!("{{\"time\":\"{number:04}\"}}")
}

#[test]
fn a_file_is_begun_anew_each_day_and_names_sort_by_time() {
    let folder = Folder::new("day");
    let mut file = AuditFile::new(&folder.rule(1000));
    for (number, at_ms) in
        [(1, NOON_MS), (2, NOON_MS + 11 * HOUR_MS), (3, NOON_MS + 12 * HOUR_MS), (4, NOON_MS + 40 * HOUR_MS)]
    {
        file.append(&line(number), at_ms).expect("room");
    }
    let names = folder.names();
    assert_eq!(names, ["audit-20260102T000000.000Z.jsonl", "audit-20260103T040000.000Z.jsonl", "audit.jsonl"]);
    assert_eq!(folder.text(&names[0]), format!("{}\n{}\n", line(1), line(2)));
    assert_eq!((folder.text(&names[1]), folder.text(&names[2])), (line(3) + "\n", line(4) + "\n"));
    let mode = std::fs::metadata(folder.0.join("audit.jsonl")).expect("there").permissions().mode();
    assert_eq!(mode & 0o137, 0, "{mode:o}: for its owner, to be read by its group");
}

#[test]
fn a_file_never_grows_beyond_its_bound_and_no_name_is_taken_twice() {
    let folder = Folder::new("size");
    let mut file = AuditFile::with_bounds(&folder.rule(1000), 64, 10_000);
    // All within one millisecond, as if the clock stood.
    for number in 0..40 {
        file.append(&line(number), NOON_MS).expect("room");
    }
    let names = folder.names();
    let all: String = names.iter().map(|name| folder.text(name)).collect();
    assert_eq!(all.lines().count(), 40, "{names:?}");
    assert!(names.iter().all(|name| folder.text(name).len() <= 64));
    let expected: Vec<String> = (0..40).map(line).collect();
    assert_eq!(all.lines().collect::<Vec<_>>(), expected, "names sort as the lines do");
}

#[test]
fn what_is_too_old_goes_and_all_together_stay_below_their_bound() {
    let folder = Folder::new("old");
    let mut file = AuditFile::new(&folder.rule(48));
    let mut removed = 0;
    for day in 0..6 {
        removed += file.append(&line(day), NOON_MS + u64::from(day) * 24 * HOUR_MS).expect("room");
    }
    assert_eq!((folder.names().len(), removed), (4, 0), "three of before, none older than two days");
    for name in ["audit-notes.jsonl", "audit-20260101T000000.000Z.jsonl.gz", "other-20200101T000000.000Z.jsonl"] {
        std::fs::write(folder.0.join(name), "somebody else's").expect("writable");
    }
    assert_eq!(file.prune(NOON_MS + 1000 * HOUR_MS).expect("ours"), 0);
    assert_eq!(folder.names().len(), 4, "{:?}: others' files stay, and the one in use", folder.names());
    let small = Folder::new("total");
    let mut file = AuditFile::with_bounds(&small.rule(1000), 64, 200);
    let removed: usize = (0..40).map(|number| file.append(&line(number), NOON_MS).expect("room")).sum();
    let bytes: usize = small.names().iter().map(|name| small.text(name).len()).sum();
    assert!(bytes <= 200 && removed > 0, "{bytes} {removed}");
    assert!(small.text("audit.jsonl").contains(&line(39)), "the newest are there");
}

#[test]
fn a_line_that_was_cut_off_is_not_continued() {
    let folder = Folder::new("torn");
    let mut file = AuditFile::new(&folder.rule(1));
    file.append(&line(1), now_ms()).expect("room");
    drop(file);
    for begun in ["{", "{\"time\":\"20", "{\"time\":\"2026\",\"seq\":"] {
        let whole = folder.text("audit.jsonl");
        std::fs::write(folder.0.join("audit.jsonl"), whole + begun).expect("writable");
        AuditFile::new(&folder.rule(1)).append(&line(2), now_ms()).expect("room");
    }
    assert_eq!(folder.text("audit.jsonl"), format!("{0}\n{1}\n{1}\n{1}\n", line(1), line(2)));
    std::fs::write(folder.0.join("audit.jsonl"), "precious").expect("writable");
    let refused = AuditFile::new(&folder.rule(1)).append(&line(2), now_ms()).expect_err("not ours");
    assert!(refused.to_string().contains("no audit"), "{refused}");
    assert_eq!(folder.text("audit.jsonl"), "precious");
}

#[test]
fn a_file_that_was_moved_away_is_made_again() {
    let folder = Folder::new("moved");
    let mut file = AuditFile::new(&folder.rule(1));
    file.append(&line(1), now_ms()).expect("room");
    std::fs::rename(folder.0.join("audit.jsonl"), folder.0.join("moved")).expect("ours");
    file.append(&line(2), now_ms()).expect("room");
    assert_eq!((folder.text("moved"), folder.text("audit.jsonl")), (line(1) + "\n", line(2) + "\n"));
}

#[test]
fn what_is_no_file_is_an_error_at_once() {
    let folder = Folder::new("pipe");
    std::fs::create_dir_all(&folder.0).expect("writable");
    let pipe = folder.0.join("audit.jsonl");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("ours");
    let mut file = AuditFile::new(&folder.rule(1));
    // Opened to read as well, so that nobody is waited for; then it fills.
    let refused = (0..100_000).find_map(|number| file.append(&line(number), now_ms()).err());
    assert_eq!(refused.expect("it is full").kind(), io::ErrorKind::WouldBlock);
    assert!(check(&AuditRule { path: folder.0.clone(), keep: Duration::from_secs(1) }).is_err(), "a folder");
    assert!(check(&AuditRule { path: "/dev/null/x".into(), keep: Duration::from_secs(1) }).is_err());
}

#[test]
fn times_of_names_are_read_back() {
    let rule = AuditRule { path: "/x/a.b.log".into(), keep: Duration::ZERO };
    let name = AuditFile::new(&rule).name_at(NOON_MS + 7);
    assert_eq!(name, "a.b-20260101T120000.007Z.log");
    assert_eq!(time_of_name("20260101T120000.007Z"), Some(NOON_MS + 7));
    for junk in ["", "20260101T120000.007", "20261301T120000.007Z", "äääääääääääääääääääZ", "notes"]
    {
        assert_eq!(time_of_name(junk), None, "{junk}");
    }
}
