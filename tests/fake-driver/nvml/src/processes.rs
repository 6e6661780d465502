//! Which processes use a device, and how much of it.
//!
//! All are compute processes: the machine knows no graphics and no MPS.
#![allow(non_snake_case)]

use crate::args::{get, get_versioned, put, put_all, put_list};
use crate::devices::{Device, device};
use crate::entry::machine;
use crate::mig::may_ask;
use crate::types::{
    Answer, Code, NOT_AVAILABLE, UNSIGNED_INT, nvmlDevice_t, nvmlProcessDetail_v1_t, nvmlProcessDetailList_v1_t,
    nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t, nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t,
    nvmlProcessesUtilizationInfo_v1_t, nvmlSample_t, nvmlUtilization_t, nvmlValue_t,
};
use core::ffi::{c_uint, c_ulonglong};
use fake_machine::{Lack, ProcessSample, ProcessUse, lacks};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// A process, and the MIG instance that it uses: GPU instance and compute instance.
struct Listed {
    process: ProcessUse,
    instance: (c_uint, c_uint),
}

fn first_version(listed: &Listed) -> nvmlProcessInfo_v1_t {
    nvmlProcessInfo_v1_t { pid: listed.process.host_pid, usedGpuMemory: listed.process.bytes }
}

fn later_version(listed: &Listed) -> nvmlProcessInfo_v2_t {
    nvmlProcessInfo_v2_t {
        pid: listed.process.host_pid,
        usedGpuMemory: listed.process.bytes,
        gpuInstanceId: listed.instance.0,
        computeInstanceId: listed.instance.1,
    }
}

/// The processes that a driver tells of: on a divided device, those of all its instances.
fn listed(device: &Device) -> Answer<Vec<Listed>> {
    may_ask(device)?;
    if lacks(Lack::Processes) {
        return Ok(Vec::new());
    }
    let units = machine().instances(device.index).filter_map(Device::at);
    let on = |unit: Device| {
        let instance = unit.spec.instance.as_ref();
        let instance = instance.map_or((NOT_AVAILABLE, NOT_AVAILABLE), |it| (it.gpu_instance, it.compute_instance));
        machine().processes(unit.index).into_iter().map(move |process| Listed { process, instance })
    };
    Ok(Device::at(device.index).into_iter().chain(units).flat_map(on).collect())
}

fn compute<T: Copy>(handle: nvmlDevice_t, count: *mut c_uint, out: *mut T, form: fn(&Listed) -> T) -> Answer {
    put_list(count, out, &listed(&device(handle)?)?.iter().map(form).collect::<Vec<_>>())
}

fn none<T: Copy>(handle: nvmlDevice_t, count: *mut c_uint, out: *mut T) -> Answer {
    device(handle)?;
    put_list(count, out, &[])
}

pub(crate) fn nvmlDeviceGetComputeRunningProcesses(
    handle: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_v1_t,
) -> Answer {
    compute(handle, infoCount, infos, first_version)
}

pub(crate) fn nvmlDeviceGetComputeRunningProcesses_v2(
    handle: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_v2_t,
) -> Answer {
    compute(handle, infoCount, infos, later_version)
}

pub(crate) fn nvmlDeviceGetComputeRunningProcesses_v3(
    handle: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_v2_t,
) -> Answer {
    compute(handle, infoCount, infos, later_version)
}

pub(crate) fn nvmlDeviceGetGraphicsRunningProcesses(
    handle: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_v1_t,
) -> Answer {
    none(handle, infoCount, infos)
}

pub(crate) fn nvmlDeviceGetGraphicsRunningProcesses_v2(
    handle: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_v2_t,
) -> Answer {
    none(handle, infoCount, infos)
}

pub(crate) fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    handle: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_v2_t,
) -> Answer {
    none(handle, infoCount, infos)
}

pub(crate) fn nvmlDeviceGetMPSComputeRunningProcesses(
    handle: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_v1_t,
) -> Answer {
    none(handle, infoCount, infos)
}

pub(crate) fn nvmlDeviceGetMPSComputeRunningProcesses_v2(
    handle: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_v2_t,
) -> Answer {
    none(handle, infoCount, infos)
}

pub(crate) fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    handle: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_v2_t,
) -> Answer {
    none(handle, infoCount, infos)
}

pub(crate) fn nvmlDeviceGetRunningProcessDetailList(
    handle: nvmlDevice_t,
    plist: *mut nvmlProcessDetailList_v1_t,
) -> Answer {
    const COMPUTE: c_uint = 0;
    const MPS: c_uint = 2;
    let device = device(handle)?;
    let mut list = get_versioned(plist, 1)?;
    let processes = match list.mode {
        COMPUTE => listed(&device)?,
        1..=MPS => Vec::new(),
        _ => return Err(Code::INVALID_ARGUMENT),
    };
    let details = processes.iter().map(|listed| nvmlProcessDetail_v1_t {
        pid: listed.process.host_pid,
        usedGpuMemory: listed.process.bytes,
        gpuInstanceId: listed.instance.0,
        computeInstanceId: listed.instance.1,
        usedGpuCcProtectedMemory: 0,
    });
    let outcome = put_list(&raw mut list.numProcArrayEntries, list.procArray, &details.collect::<Vec<_>>());
    put(plist, list)?;
    outcome
}

/// What the driver samples: nothing where MIG is on.
fn sampled(handle: nvmlDevice_t) -> Answer<Device> {
    let device = device(handle)?;
    let is_mig = device.spec.is_divided || device.spec.instance.is_some();
    if is_mig { Err(Code::NOT_SUPPORTED) } else { Ok(device) }
}

/// The last whole window of a sixth of a second: late, as on the real device. Memory traffic is not modelled.
pub(crate) fn nvmlDeviceGetUtilizationRates(handle: nvmlDevice_t, utilization: *mut nvmlUtilization_t) -> Answer {
    let gpu = machine().utilisation(sampled(handle)?.index);
    put(utilization, nvmlUtilization_t { gpu, memory: 0 })
}

pub(crate) fn nvmlDeviceGetSamples(
    handle: nvmlDevice_t,
    type_: c_uint,
    lastSeenTimeStamp: c_ulonglong,
    sampleValType: *mut c_uint,
    sampleCount: *mut c_uint,
    samples: *mut nvmlSample_t,
) -> Answer {
    const GPU_UTILIZATION: c_uint = 1;
    let device = sampled(handle)?;
    if type_ != GPU_UTILIZATION {
        return Err(Code::NOT_SUPPORTED);
    }
    let newer = machine().samples(device.index).into_iter();
    let newer = newer.map(|sample| nvmlSample_t {
        timeStamp: timestamp_us(sample.at_ns),
        sampleValue: nvmlValue_t(sample.percent.into()),
    });
    let mut newer: Vec<_> = newer.filter(|sample| sample.timeStamp > lastSeenTimeStamp).collect();
    put(sampleValType, UNSIGNED_INT)?;
    if samples.is_null() {
        return put(sampleCount, newer.len().try_into().unwrap_or(c_uint::MAX));
    }
    if newer.is_empty() {
        return Err(Code::NOT_FOUND);
    }
    newer.truncate(get(sampleCount)? as usize);
    put_list(sampleCount, samples, &newer)
}

/// The newest sample of each process that is newer than what the program has seen, by time in microseconds.
fn newest_samples(index: usize, last_seen_us: u64) -> Vec<(u64, ProcessSample)> {
    /// What a sampler told that was never filled.
    const WILD: u32 = 4_294_000_000;
    if lacks(Lack::Samples) || lacks(Lack::SampleCount) {
        return Vec::new();
    }
    let mut newest = BTreeMap::new();
    for mut sample in machine().process_samples(index) {
        if lacks(Lack::SaneSamples) {
            sample.percent = WILD;
        }
        let at_us = timestamp_us(sample.at_ns);
        if at_us > last_seen_us {
            newest.insert(sample.host_pid, (at_us, sample));
        }
    }
    newest.into_values().collect()
}

fn no_samples() -> Answer {
    if lacks(Lack::SampleCount) { Ok(()) } else { Err(Code::NOT_FOUND) }
}

pub(crate) fn nvmlDeviceGetProcessUtilization(
    handle: nvmlDevice_t,
    utilization: *mut nvmlProcessUtilizationSample_t,
    processSamplesCount: *mut c_uint,
    lastSeenTimeStamp: c_ulonglong,
) -> Answer {
    let samples = newest_samples(sampled(handle)?.index, lastSeenTimeStamp);
    get(processSamplesCount)?;
    if samples.is_empty() {
        put(processSamplesCount, 0)?;
        return no_samples();
    }
    let form = |(timeStamp, sample): &(u64, ProcessSample)| nvmlProcessUtilizationSample_t {
        pid: sample.host_pid,
        timeStamp: *timeStamp,
        smUtil: sample.percent,
        memUtil: 0,
        encUtil: 0,
        decUtil: 0,
    };
    put_list(processSamplesCount, utilization, &samples.iter().map(form).collect::<Vec<_>>())
}

pub(crate) fn nvmlDeviceGetProcessesUtilizationInfo(
    handle: nvmlDevice_t,
    procesesUtilInfo: *mut nvmlProcessesUtilizationInfo_v1_t,
) -> Answer {
    let device = sampled(handle)?;
    let mut info = get_versioned(procesesUtilInfo, 1)?;
    let samples = newest_samples(device.index, info.lastSeenTimeStamp);
    let room = info.processSamplesCount as usize;
    info.processSamplesCount = samples.len().try_into().unwrap_or(c_uint::MAX);
    put(procesesUtilInfo, info)?;
    if samples.is_empty() {
        return no_samples();
    }
    if info.procUtilArray.is_null() || room < samples.len() {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    let form = |(timeStamp, sample): &(u64, ProcessSample)| nvmlProcessUtilizationInfo_v1_t {
        timeStamp: *timeStamp,
        pid: sample.host_pid,
        smUtil: sample.percent,
        memUtil: 0,
        encUtil: 0,
        decUtil: 0,
        jpgUtil: 0,
        ofaUtil: 0,
    };
    put_all(info.procUtilArray, &samples.iter().map(form).collect::<Vec<_>>())
}

/// A moment of the machine's clock as NVML tells it: microseconds since 1970.
#[allow(clippy::disallowed_methods)] // NVML's time stamps are of the wall clock.
pub(crate) fn timestamp_us(at_ns: u64) -> u64 {
    let ago_ns = fake_machine::now_ns().saturating_sub(at_ns);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // A window's end is told alike whenever it is asked for: rounded to a millisecond, which both clocks keep.
    let at_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX).saturating_sub(ago_ns / 1000);
    (at_us + 500) / 1000 * 1000
}

fn idle_engine(handle: nvmlDevice_t, utilization: *mut c_uint, samplingPeriodUs: *mut c_uint) -> Answer {
    /// A sixth of a second.
    const PERIOD_US: c_uint = 166_666;
    device(handle)?;
    put(utilization, 0)?;
    put(samplingPeriodUs, PERIOD_US)
}

/// No program can use the engines for video here.
pub(crate) fn nvmlDeviceGetEncoderUtilization(
    handle: nvmlDevice_t,
    utilization: *mut c_uint,
    samplingPeriodUs: *mut c_uint,
) -> Answer {
    idle_engine(handle, utilization, samplingPeriodUs)
}

pub(crate) fn nvmlDeviceGetDecoderUtilization(
    handle: nvmlDevice_t,
    utilization: *mut c_uint,
    samplingPeriodUs: *mut c_uint,
) -> Answer {
    idle_engine(handle, utilization, samplingPeriodUs)
}

pub(crate) fn nvmlDeviceGetAccountingMode(handle: nvmlDevice_t, mode: *mut c_uint) -> Answer {
    device(handle)?;
    put(mode, 0)
}
