//! Nobody does anything.

use super::Policy;

/// Contexts take turns in hardware.
#[derive(Debug)]
pub struct Native;

impl Policy for Native {}
