//! Which functions a module has given out: with the module they go, and the driver may use their handles for others.

use crate::pace;
use crate::process::process;
use std::collections::{HashMap, HashSet};

/// Most functions of one module that are remembered. What is known of the length of others is then wrong for the few launches
/// after which it is known again.
const FUNCTIONS_MAX: usize = 4096;

/// The functions given out, by module.
#[derive(Default)]
pub(crate) struct Functions {
    of_module: HashMap<usize, HashSet<usize>>,
}

/// `module` has given out `function`.
pub(crate) fn remember(module: usize, function: usize) {
    let mut functions = process().functions.lock();
    let known = functions.of_module.entry(module).or_default();
    if known.len() < FUNCTIONS_MAX {
        known.insert(function);
    }
}

/// `module` is about to go.
pub(crate) fn forget(module: usize) {
    let gone = process().functions.lock().of_module.remove(&module);
    gone.into_iter().flatten().for_each(pace::function_gone);
}
