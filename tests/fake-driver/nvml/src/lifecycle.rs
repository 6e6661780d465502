//! Beginning and end, errors in words, versions, and names of processes.
#![allow(non_snake_case)]

use crate::args::{array, get_versioned, put, put_text};
use crate::entry;
use crate::types::{Answer, Code, nvmlSystemDriverBranchInfo_v1_t};
use core::ffi::{c_char, c_int, c_uint};

pub(crate) fn nvmlInit() -> Answer {
    entry::begin()
}

pub(crate) fn nvmlInit_v2() -> Answer {
    entry::begin()
}

/// The flags say what to do without devices, which a machine has; the real library minds no unknown ones.
pub(crate) fn nvmlInitWithFlags(_flags: c_uint) -> Answer {
    entry::begin()
}

pub(crate) fn nvmlShutdown() -> Answer {
    entry::end();
    Ok(())
}

pub(crate) fn nvmlErrorString(result: c_int) -> *const c_char {
    entry::describe(result)
}

/// The driver branch that came with a CUDA version.
fn branch() -> u32 {
    const BRANCHES: &[(i32, u32)] = &[
        (13040, 615),
        (13030, 610),
        (13020, 595),
        (13010, 590),
        (13000, 580),
        (12090, 575),
        (12080, 570),
        (12070, 565),
        (12060, 560),
        (12050, 555),
        (12040, 550),
        (12030, 545),
        (12020, 535),
        (12010, 530),
        (12000, 525),
        (11080, 520),
        (11070, 515),
        (11060, 510),
        (11050, 495),
        (11040, 470),
        (11030, 465),
        (11020, 460),
        (11010, 455),
        (11000, 450),
        (10020, 440),
    ];
    let version = fake_machine::driver_version();
    BRANCHES.iter().find(|row| version >= row.0).map_or(390, |row| row.1)
}

/// A version of that branch which NVIDIA never gave out, so that nobody takes it for one of theirs.
pub(crate) fn driver_version() -> String {
    format!("{}.00.00", branch())
}

pub(crate) fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> Answer {
    put_text(version, length, &driver_version())
}

pub(crate) fn nvmlSystemGetDriverBranch(branchInfo: *mut nvmlSystemDriverBranchInfo_v1_t, length: c_uint) -> Answer {
    let mut info = get_versioned(branchInfo, 1)?;
    let name = format!("r{}_00", branch());
    if name.len() >= length as usize {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    info.branch = array(&name);
    put(branchInfo, info)
}

pub(crate) fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) -> Answer {
    let major = fake_machine::driver_version() / 1000;
    put_text(version, length, &format!("{major}.{}", driver_version()))
}

pub(crate) fn nvmlSystemGetCudaDriverVersion(cudaDriverVersion: *mut c_int) -> Answer {
    put(cudaDriverVersion, fake_machine::driver_version())
}

pub(crate) fn nvmlSystemGetCudaDriverVersion_v2(cudaDriverVersion: *mut c_int) -> Answer {
    put(cudaDriverVersion, fake_machine::driver_version())
}

/// The name by which the process was started, cut to what fits.
pub(crate) fn nvmlSystemGetProcessName(pid: c_uint, name: *mut c_char, length: c_uint) -> Answer {
    if name.is_null() || length == 0 {
        return Err(Code::INVALID_ARGUMENT);
    }
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| Code::NOT_FOUND)?;
    let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut text = String::from_utf8_lossy(first).into_owned();
    while text.len() >= length as usize {
        text.pop();
    }
    put_text(name, length, &text)
}
