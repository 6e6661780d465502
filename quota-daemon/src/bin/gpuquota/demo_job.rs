//! One of the jobs of `demo`: an ordinary CUDA program that knows nothing of quotas. It says what it meets, one word
//! and a number a line, and waits for a line where the demo wants to look at it.

use crate::Failure;
use crate::cuda::{Code, Cuda};
use std::io::BufRead;

/// A function that does nothing. On the simulated driver its name says how long that takes.
const PTX: &core::ffi::CStr =
    c".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry spin_200us()\n{\n    ret;\n}\n";
/// Bytes that go to the device and back.
const COPIED_BYTES: usize = 1 << 20;
/// Launches of the function.
const LAUNCHES: usize = 50;

/// Runs the job.
pub(crate) fn run() -> Result<(), Failure> {
    let cuda = Cuda::open().map_err(Failure::new)?;
    job(&cuda).map_err(|Code(code)| Failure::new(format!("the job met CUDA error {code}")))
}

fn job(cuda: &Cuda) -> Result<(), Code> {
    cuda.init()?;
    cuda.use_first_device()?;
    let total = cuda.total_bytes()?;
    let (free, shown) = cuda.memory()?;
    say("total", total);
    say("shown", shown);
    say("free", free);
    let most = free / 4 * 3;
    let block = cuda.allocate(most)?;
    say("held", most);
    let beyond = cuda.allocate(free / 2).err().map_or(0, |Code(code)| code);
    say("beyond", beyond.unsigned_abs().into());
    let data: Vec<u8> = (0..COPIED_BYTES).map(|index| (index * 31 % 251) as u8).collect();
    say("copied", u64::from(cuda.round_trip(block, &data)?));
    for _ in 0..LAUNCHES {
        cuda.launch(PTX, c"spin_200us")?;
    }
    say("launched", LAUNCHES as u64);
    say("ready", 1);
    wait();
    cuda.free(block)?;
    say("after", cuda.memory()?.0);
    wait();
    Ok(())
}

fn say(word: &str, number: u64) {
    crate::table::print(&format!("{word} {number}\n"));
}

fn wait() {
    let mut line = String::new();
    // The demo's end is as good as its word.
    let _ = std::io::stdin().lock().read_line(&mut line);
}
