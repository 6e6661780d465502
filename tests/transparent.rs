//! Under a quota that never bites, the shim is not seen: by every door, call after call, errors included.

use harness::{Done, Machine, program};

#[test]
fn a_quota_that_never_bites_changes_no_answer() {
    let words = "init ctx=0 linear:a=0 linear:b=3M copy:b pitch:c=5M managed:d=7M copy:d async:e=9M copy:e pool:f=3M vmm:g=4M copy:g \
                 vmm:h=1M array:i=2M array3d:j=8M mipmap:k=1M free:b free:b afree:e sync free:c free:d afree:f free:g free:i free:j \
                 free:k linear:l=900G launch=spin_20us launch=other sync ctx=7 total=5 drop drop linear:m=1M";
    let answers = |done: Done| {
        assert_eq!(done.status, 0, "{done:?}");
        done.out
    };
    for door in ["linked", "proc:13020", "dlopen:libcuda.so.1,ptsz"] {
        let machine = Machine::new("a100-80gb");
        let name = if door == "linked" { "probe-linked" } else { "probe" };
        let without = answers(machine.bare(program(name)).arg(door).words(words).run());
        let with = answers(machine.probe(door).memory("100%").env("GPUQUOTA_LOG", "off").words(words).run());
        assert_eq!(with, without, "{door}");
        assert!(without.contains(" 1\n") && without.contains(" 2\n"), "errors are among the answers: {without}");
    }
}
