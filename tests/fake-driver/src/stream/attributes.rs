//! Attributes of streams. They are remembered; only the priority means something elsewhere.

use super::calls::possible_priority;
use super::resolve;
use crate::args::{Answer, get, put};
use crate::entry::Call;
use core::sync::atomic::Ordering;
use driver_api::{CUlaunchAttributeValue, CUresult, CUstream, CUstreamAttrID, CUstreamAttrValue};

const ACCESS_POLICY_WINDOW: i32 = 1;
const SYNCHRONIZATION_POLICY: i32 = 3;
const PRIORITY: i32 = 8;
const MEM_SYNC_DOMAIN_MAP: i32 = 9;
const MEM_SYNC_DOMAIN: i32 = 10;

/// The value of an attribute that nobody has set; `None` for what streams don't have.
fn default_value(attribute: CUstreamAttrID) -> Option<CUlaunchAttributeValue> {
    let first = match attribute {
        ACCESS_POLICY_WINDOW | MEM_SYNC_DOMAIN => 0,
        SYNCHRONIZATION_POLICY => 1,
        // The default domain maps to 0, the remote one, in the second byte, to 1.
        MEM_SYNC_DOMAIN_MAP => 0x100,
        _ => return None,
    };
    Some(CUlaunchAttributeValue { words: [first, 0, 0, 0, 0, 0, 0, 0] })
}

pub(crate) fn cuStreamGetAttribute(
    call: &Call,
    stream: CUstream,
    attribute: CUstreamAttrID,
    value: *mut CUstreamAttrValue,
) -> Answer {
    let stream = resolve(call, stream)?;
    if attribute == PRIORITY {
        let priority = stream.priority.load(Ordering::Relaxed).cast_unsigned();
        return put(value, CUlaunchAttributeValue { words: [u64::from(priority), 0, 0, 0, 0, 0, 0, 0] });
    }
    let known = stream.attributes.lock().get(&attribute).copied();
    put(value, known.or_else(|| default_value(attribute)).ok_or(CUresult::INVALID_VALUE)?)
}

pub(crate) fn cuStreamSetAttribute(
    call: &Call,
    stream: CUstream,
    attribute: CUstreamAttrID,
    value: *const CUstreamAttrValue,
) -> Answer {
    let stream = resolve(call, stream)?;
    let value = get(value)?;
    #[allow(clippy::cast_possible_truncation)] // The union's `int` is the lower half of its first word.
    let number = value.words[0] as i32;
    match attribute {
        PRIORITY => stream.priority.store(possible_priority(number), Ordering::Relaxed),
        SYNCHRONIZATION_POLICY if !(1..=4).contains(&number) => return Err(CUresult::INVALID_VALUE),
        _ => {
            default_value(attribute).ok_or(CUresult::INVALID_VALUE)?;
            stream.attributes.lock().insert(attribute, value);
        }
    }
    Ok(())
}

pub(crate) fn cuStreamCopyAttributes(call: &Call, destination: CUstream, source: CUstream) -> Answer {
    let (destination, source) = (resolve(call, destination)?, resolve(call, source)?);
    let copied = source.attributes.lock().clone();
    *destination.attributes.lock() = copied;
    Ok(())
}
