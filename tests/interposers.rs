//! Beside other interposers: each is called once, the driver once, and look-ups mean what they meant.

use harness::{Machine, program, shim};

const WORDS: &str = "init ctx linear:a=600M linear:b=600M free:a";

/// A tracer of the same function, before and behind us.
#[test]
fn a_tracer_in_either_order_is_called_once_and_so_is_the_driver() {
    for (tracer, behind) in
        [("tracer.so", true), ("tracer.so", false), ("tracer-dlsym.so", true), ("tracer-dlsym.so", false)]
    {
        let machine = Machine::new("a100-80gb");
        let tracer = program(tracer);
        let pair = if behind { [shim(), tracer] } else { [tracer, shim()] };
        let preload = format!("{}:{}", pair[0].display(), pair[1].display());
        let job =
            machine.probe("linked").memory("1GiB").env("LD_PRELOAD", preload).env("GPUQUOTA_LOG", "off").journalled();
        let done = job.words(WORDS).run();
        assert_eq!(
            (done.code("linear:a=600M"), done.code("linear:b=600M"), done.code("free:a")),
            (0, 2, 0),
            "{done:?}"
        );
        // Behind us, the tracer doesn't see what we refuse.
        let traced = if behind { "traced 1" } else { "traced 2" };
        assert!(done.err.contains(traced), "{:?} {}", pair, done.err);
        let asked = machine.journal().into_iter().filter(|call| call["function"] == "cuMemAlloc_v2").count();
        assert_eq!(asked, 1, "the driver is asked once");
    }
}

#[test]
fn next_means_the_next_of_the_caller() {
    let machine = Machine::new("a100-80gb");
    let (a, b) = (program("next-a.so"), program("next-b.so"));
    let bare = machine.bare(program("plain")).env("LD_PRELOAD", format!("{}:{}", a.display(), b.display())).run();
    for order in [[shim(), a.clone(), b.clone()], [a.clone(), shim(), b.clone()], [a.clone(), b.clone(), shim()]] {
        let preload = order.map(|path| path.display().to_string()).join(":");
        let ours = machine.bare(program("plain")).env("LD_PRELOAD", preload).run();
        assert_eq!(ours.err, bare.err);
    }
    assert!(bare.err.contains("a then b") && bare.err.contains("b then none"), "{}", bare.err);
}

/// Names that begin like the driver's, versioned look-ups, a plug-in's RUNPATH: as without us.
#[test]
fn look_ups_that_are_not_ours_are_as_before() {
    let machine = Machine::new("a100-80gb");
    let plugin = program("plugin.so");
    let bare = machine.bare(program("lookups")).arg(&plugin).run().quiet();
    let ours = machine.job(program("lookups")).arg(&plugin).run().quiet();
    for (bare, ours) in bare.lines().into_iter().zip(ours.lines()) {
        if bare.starts_with("alloc") || bare.starts_with("launch") {
            assert!(ours.ends_with("libgpuquota.so"), "{ours}");
        } else {
            assert_eq!(ours, bare);
        }
    }
    assert_eq!(ours.answer("tell"), "neighbour");
}
