//! What the shim does at each entry point: safe code, a few lines each, under the C name.
//!
//! A function of an ABI name in one of these files *is* the hook of every symbol with that ABI (the build
//! script finds it); nothing else has to be written. A hook admits, calls, commits; what must be undone is a
//! value that undoes itself.

pub(crate) mod alloc;
pub(crate) mod array;
pub(crate) mod batch;
pub(crate) mod capture;
pub(crate) mod checkpoint;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod external;
pub(crate) mod free;
pub(crate) mod graph;
pub(crate) mod launch;
pub(crate) mod limit;
pub(crate) mod module;
pub(crate) mod nvml;
pub(crate) mod pool;
pub(crate) mod query;
pub(crate) mod resolve;
pub(crate) mod set;
pub(crate) mod share;
pub(crate) mod stream;
pub(crate) mod sync;
pub(crate) mod vmm;

use driver_api::CUresult;

/// What the program will be told.
pub(crate) type Answer = Result<(), Refusal>;

/// What the driver says when we take back what it did.
pub(crate) type Undone = Result<(), CUresult>;

/// A "no" that knows who said it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The quota: out of memory, the driver was not asked.
    Quota,
    /// The driver, whose code goes to the program unchanged.
    Driver(CUresult),
}

impl From<CUresult> for Refusal {
    fn from(code: CUresult) -> Self {
        Self::Driver(code)
    }
}

/// The code in which the program hears an answer.
pub(crate) trait Code {
    fn code(self) -> CUresult;
}

impl Code for Answer {
    fn code(self) -> CUresult {
        match self {
            Ok(()) => CUresult::SUCCESS,
            Err(Refusal::Quota) => CUresult::OUT_OF_MEMORY,
            Err(Refusal::Driver(code)) => code,
        }
    }
}
