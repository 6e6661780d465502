//! Notices for a program that wants to hear of them: that it has to make room, is interrupted, goes on.
//!
//! They lie on the quota page. A thread of ours waits there, in pieces, for as long as a callback is registered and there is a
//! page; it runs the callback as a thread of the program, whose driver calls are hooked as any other's. A forked child has neither
//! callback nor thread.
#![allow(unsafe_code)]

use crate::join::{Caps, Member};
use crate::log;
use crate::pace::clock::{now_ns, wait_on};
use crate::pace::keeper::start_thread;
use crate::process::process;
use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use parking_lot::Mutex;
use quota_core::settings::LogLevel;
use quota_wire::QuotaPage;
use quota_wire::message::Request;
use quota_wire::notice::{Event, Notice};
use quota_wire::socket::Connection;
use std::sync::Arc;

/// One piece of the wait: so long at most until a daemon that came back knows that somebody listens.
const PIECE_NS: u64 = 1_000_000_000;
/// Its stack: what a callback needs is the program's business, so as much as its other threads have.
const STACK_BYTES: usize = 8 << 20;

/// `struct gpuquota_notice` of the header.
#[repr(C)]
pub(crate) struct CNotice {
    size: usize,
    event: c_int,
    reason: c_int,
    action: c_int,
    grace_ms: c_uint,
}

/// `gpuquota_notice_fn` of the header.
pub(crate) type Callback = unsafe extern "C" fn(*const CNotice, *mut c_void);

#[derive(Clone, Copy)]
struct Registered {
    callback: Callback,
    data: *mut c_void,
}

// SAFETY: the pointer is the program's, and goes back to it as it came.
unsafe impl Send for Registered {}

/// What this process has heard.
#[derive(Default)]
pub(crate) struct Notices {
    registered: Mutex<Option<Registered>>,
    runs: AtomicBool,
    /// Number of the notice for which the program is ready.
    ready: AtomicU32,
}

impl Notices {
    /// Registers a callback, or none.
    pub(crate) fn register(&self, callback: Option<Callback>, data: *mut c_void) {
        *self.registered.lock() = callback.map(|callback| Registered { callback, data });
        // Said before the program goes on: what it does next may be to tell others that it is ready for anything.
        if let Some(connection) = member().and_then(connection) {
            let _ = connection.send(&Request::Listen { listens: callback.is_some() }, &[]);
        }
        if callback.is_some() {
            self.start();
        }
    }

    /// The process has just become a member: from now on there is a page.
    pub(crate) fn member_made(&self) {
        let registered = *self.registered.lock();
        if let Some(Registered { callback, data }) = registered {
            self.register(Some(callback), data);
        }
    }

    /// The program has done what it wanted to; false when there is nothing to be ready for.
    pub(crate) fn ready(&self) -> Result<(), bool> {
        let member = member().ok_or(false)?;
        let (notice, _) = page(member).and_then(QuotaPage::notice).ok_or(false)?;
        if notice.event != Event::Notice {
            return Err(false);
        }
        self.ready.store(notice.number, Ordering::Release);
        let sent = connection(member).map(|connection| connection.send(&Request::Ready { notice: notice.number }, &[]));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err(true) }
    }

    fn start(&self) {
        if member().and_then(page).is_none() || self.runs.swap(true, Ordering::AcqRel) {
            return;
        }
        if !start_thread(main, STACK_BYTES) {
            self.runs.store(false, Ordering::Release);
            log::line(LogLevel::Warn, format_args!("no thread can be made to hear of notices"));
        }
    }

    /// The thread: until nobody wants to hear.
    fn run(&self, member: &'static Member, page: &QuotaPage) {
        let mut heard_by: Option<Arc<Connection>> = None;
        let (mut last, mut shown) = (0, None);
        loop {
            let number = page.notice_number().load(Ordering::Acquire);
            let Some(registered) = *self.registered.lock() else {
                self.runs.store(false, Ordering::SeqCst);
                // Somebody may have registered just before that store, and started nothing.
                if self.registered.lock().is_none() || self.runs.swap(true, Ordering::SeqCst) {
                    return;
                }
                continue;
            };
            self.introduce(member, &mut heard_by);
            if number != last
                && let Some((notice, until_ns)) = page.notice()
            {
                last = number;
                self.show(registered, notice, until_ns, &mut shown);
            }
            wait_on(page.notice_number(), number, PIECE_NS, true);
        }
    }

    /// Has each daemon know that we listen, and that we are ready where we are: the last one may have died before it was told.
    fn introduce(&self, member: &'static Member, heard_by: &mut Option<Arc<Connection>>) {
        let Some(now) = connection(member) else { return };
        if heard_by.as_ref().is_some_and(|before| Arc::ptr_eq(before, &now)) {
            return;
        }
        let ready = self.ready.load(Ordering::Acquire);
        let listens = now.send(&Request::Listen { listens: true }, &[]);
        if listens.is_ok() && (ready == 0 || now.send(&Request::Ready { notice: ready }, &[]).is_ok()) {
            *heard_by = Some(now);
        }
    }

    /// Tells the program what it doesn't know yet. One that has not been told to make room needs not hear that it goes on.
    fn show(&self, registered: Registered, notice: Notice, until_ns: u64, shown: &mut Option<Event>) {
        let news = match notice.event {
            Event::Notice => true,
            Event::Interrupted => *shown != Some(Event::Interrupted),
            _ => shown.is_some(),
        };
        if !news {
            return;
        }
        let left_ms = until_ns.saturating_sub(now_ns()) / 1_000_000;
        let grace_ms = if notice.event == Event::Notice { left_ms.min(notice.grace_ms.into()) } else { 0 };
        *shown = Some(notice.event).filter(|event| *event != Event::Resumed);
        let it = CNotice {
            size: size_of::<CNotice>(),
            event: notice.event as c_int,
            reason: notice.reason as c_int,
            action: notice.action as c_int,
            grace_ms: grace_ms as c_uint,
        };
        // SAFETY: the program's function with the program's argument, as it has registered them; the notice outlives the call.
        unsafe { (registered.callback)(&it, registered.data) };
    }
}

fn member() -> Option<&'static Member> {
    process().membership.member()
}

fn page(member: &'static Member) -> Option<&'static QuotaPage> {
    match &member.caps {
        Caps::Page(page) => Some(page),
        Caps::Fixed(_) => None,
    }
}

fn connection(member: &'static Member) -> Option<Arc<Connection>> {
    member.daemon.as_ref()?.connection()
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    // SAFETY: a name of less than 16 bytes; about this thread only.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"gpuquota-notice".as_ptr()) };
    let notices = &process().notices;
    if let Some((member, page)) = member().and_then(|member| Some((member, page(member)?))) {
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| notices.run(member, page)));
        if ran.is_ok() {
            return core::ptr::null_mut();
        }
    }
    notices.runs.store(false, Ordering::Release);
    core::ptr::null_mut()
}
