//! Copies of every shape. One description, `CUDA_MEMCPY3D`, stands for all of them; a copy is checked when
//! it is asked for, and carried out in the order of its stream.

pub(crate) mod arrays;
pub(crate) mod batch;
pub(crate) mod legacy;
pub(crate) mod linear;
pub(crate) mod shaped;

use crate::args::Answer;
use crate::array::{ARRAYS, Array};
use crate::capture;
use crate::entry::Call;
use crate::memory;
use crate::pages;
use crate::stream::{self, Stream};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use driver_api::{CUDA_MEMCPY3D, CUarray, CUresult, CUstream};
use fake_machine::Bandwidth;
use std::sync::{Arc, OnceLock};

/// `CUmemorytype`
pub(crate) const HOST: c_int = 1;
pub(crate) const DEVICE: c_int = 2;
pub(crate) const ARRAY: c_int = 3;
pub(crate) const UNIFIED: c_int = 4;

/// Where a copy begins or ends.
#[derive(Clone, Copy)]
struct End {
    kind: c_int,
    host: u64,
    device: u64,
    array: CUarray,
    /// Bytes, rows and slices to skip.
    origin: [u64; 3],
    pitch: u64,
    rows: u64,
}

/// An end whose memory is known.
struct Place {
    /// The first byte.
    start: u64,
    pitch: u64,
    slice: u64,
    /// True for host memory that the driver doesn't know.
    pageable: bool,
    /// True for memory of the host.
    host: bool,
    /// Keeps an array there until the copy is done.
    array: Option<Arc<Array>>,
}

/// A copy that has been checked: what is left is to move rows.
pub(crate) struct Rows {
    to: Place,
    from: Place,
    width: u64,
    height: u64,
    depth: u64,
}

impl End {
    fn place(&self, extent: [u64; 3], write: bool) -> Answer<Place> {
        if self.kind == ARRAY {
            return self.in_array(extent);
        }
        let base = if self.kind == HOST { self.host } else { self.device };
        let [width, height, depth] = extent;
        let pitch = if self.pitch == 0 { self.origin[0] + width } else { self.pitch };
        let rows = if self.rows == 0 { self.origin[1] + height } else { self.rows };
        if (height > 1 || depth > 1) && pitch < width || depth > 1 && rows < height {
            return Err(CUresult::INVALID_VALUE);
        }
        let slice = pitch.checked_mul(rows).ok_or(CUresult::INVALID_VALUE)?;
        let offset = |[x, y, z]: [u64; 3]| -> Option<u64> {
            slice.checked_mul(z)?.checked_add(pitch.checked_mul(y)?)?.checked_add(x)
        };
        let start = offset(self.origin).and_then(|skip| base.checked_add(skip)).ok_or(CUresult::INVALID_VALUE)?;
        let bytes = offset([width, height - 1, depth - 1]).ok_or(CUresult::INVALID_VALUE)?;
        let known = memory::covers(start, bytes, |block| block.allows(write));
        let block = memory::find(start);
        let usable = match self.kind {
            HOST => true,
            DEVICE => known,
            UNIFIED => known || block.is_none(),
            _ => false,
        };
        if !usable || base == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let host = block.as_ref().is_none_or(|(_, block)| block.is_host());
        Ok(Place { start, pitch, slice, pageable: block.is_none(), host, array: None })
    }

    fn in_array(&self, [width, height, depth]: [u64; 3]) -> Answer<Place> {
        let array = ARRAYS.get(self.array)?;
        let [x, y, z] = self.origin;
        let start = array.locate([x, y, z], [width, height, depth])?;
        let (pitch, slice) = (array.row_bytes, array.row_bytes * array.rows);
        Ok(Place { start, pitch, slice, pageable: false, host: false, array: Some(array) })
    }
}

impl Rows {
    /// Checks a copy; `None` when there is nothing to move.
    pub(crate) fn new(copy: &CUDA_MEMCPY3D) -> Answer<Option<Self>> {
        let extent = [copy.WidthInBytes as u64, copy.Height as u64, copy.Depth as u64];
        if extent.contains(&0) {
            return Ok(None);
        }
        if copy.srcLOD != 0 || copy.dstLOD != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let from = End {
            kind: copy.srcMemoryType,
            host: copy.srcHost.addr() as u64,
            device: copy.srcDevice,
            array: copy.srcArray,
            origin: [copy.srcXInBytes as u64, copy.srcY as u64, copy.srcZ as u64],
            pitch: copy.srcPitch as u64,
            rows: copy.srcHeight as u64,
        };
        let to = End {
            kind: copy.dstMemoryType,
            host: copy.dstHost.addr() as u64,
            device: copy.dstDevice,
            array: copy.dstArray,
            origin: [copy.dstXInBytes as u64, copy.dstY as u64, copy.dstZ as u64],
            pitch: copy.dstPitch as u64,
            rows: copy.dstHeight as u64,
        };
        let [width, height, depth] = extent;
        let (from, to) = (from.place(extent, false)?, to.place(extent, true)?);
        Ok(Some(Self { to, from, width, height, depth }))
    }

    /// Moves the bytes.
    pub(crate) fn run(&self) {
        for z in 0..self.depth {
            for y in 0..self.height {
                let to = self.to.start + z * self.to.slice + y * self.to.pitch;
                let from = self.from.start + z * self.from.slice + y * self.from.pitch;
                pages::copy(to, from, self.width);
            }
        }
        // The arrays, if any, are held until here.
        let _ = (&self.to.array, &self.from.array);
    }

    /// What it takes the device.
    pub(crate) fn duration_ns(&self) -> u64 {
        duration_ns(self.width * self.height * self.depth, self.to.host || self.from.host)
    }

    fn is_pageable(&self) -> bool {
        self.to.pageable || self.from.pageable
    }
}

/// What it takes a device to move or set so many bytes: nothing, unless the environment says how fast it is.
pub(crate) fn duration_ns(bytes: u64, of_host: bool) -> u64 {
    static BANDWIDTH: OnceLock<Option<Bandwidth>> = OnceLock::new();
    // A faulty setting has stopped `cuInit`.
    let bandwidth = BANDWIDTH.get_or_init(|| Bandwidth::from_environment().unwrap_or_default());
    bandwidth.map_or(0, |bandwidth| bandwidth.duration_ns(bytes, of_host))
}

/// A copy of one row between addresses.
pub(crate) fn flat(to: (c_int, u64), from: (c_int, u64), bytes: usize) -> CUDA_MEMCPY3D {
    let pointer = |(kind, address): (c_int, u64)| -> *mut c_void {
        if kind == HOST { crate::state::handle(usize::try_from(address).unwrap_or(0)) } else { null_mut() }
    };
    CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: from.0,
        srcHost: pointer(from),
        srcDevice: from.1,
        srcArray: null_mut(),
        reserved0: null_mut(),
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: to.0,
        dstHost: pointer(to),
        dstDevice: to.1,
        dstArray: null_mut(),
        reserved1: null_mut(),
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
    }
}

/// Copies before returning, as the calls without `Async` do in the default stream. What stays on the
/// device is ordered like any other work of the stream, and not waited for.
fn now(call: &Call, copy: &CUDA_MEMCPY3D) -> Answer {
    let stream = stream::resolve(call, null_mut())?;
    capture::forbid_on(&stream)?;
    capture::forbid_unsafe_call()?;
    if let Some(rows) = Rows::new(copy)? {
        let duration_ns = rows.duration_ns();
        if rows.to.host || rows.from.host {
            if duration_ns > 0 {
                stream.launch(duration_ns)?;
            }
            stream.wait();
            rows.run();
        } else {
            stream.run_for(duration_ns, move || rows.run())?;
        }
    }
    Ok(())
}

/// Copies in the order of a stream, or records the copy when the stream is being captured.
fn enqueue(call: &Call, stream: CUstream, copy: &CUDA_MEMCPY3D) -> Answer {
    enqueue_in(&stream::resolve(call, stream)?, copy)
}

fn enqueue_in(stream: &Arc<Stream>, copy: &CUDA_MEMCPY3D) -> Answer {
    let rows = Rows::new(copy)?;
    if capture::record_copy(stream, copy)? {
        return Ok(());
    }
    let Some(rows) = rows else { return Ok(()) };
    if rows.is_pageable() && !stream.is_direct() {
        // The program may use pageable memory again when the call returns.
        stream.wait();
    }
    stream.run_for(rows.duration_ns(), move || rows.run())
}
