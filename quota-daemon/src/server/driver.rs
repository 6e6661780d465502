//! The driver, as the daemon has to do with it: asked from time to time, told of when it doesn't answer, let go of where a
//! device is drained.

use super::{SAMPLE_WAIT_MAX, Server};
use crate::devices::sampler::Remedy;
use crate::log;
use crate::registry::Action;
use quota_core::settings::LogLevel;
use quota_wire::audit::{AuditEvent, AuditKind};
use std::time::{Duration, Instant};

impl Server {
    /// The driver has said something.
    pub(super) fn take_sample(&mut self, now: Instant) {
        let silence = self.sampler.silence();
        let sample = self.sampler.take(now);
        self.sample = sample.devices;
        if std::mem::take(&mut self.driver_hangs) {
            log::line(LogLevel::Info, format_args!("the driver answers again"));
        }
        self.driver_given_up = false;
        if let Some((since, _)) = silence.filter(|(_, replaced)| *replaced > 0) {
            self.note_driver(format!("it answers again, after {}", in_seconds(now.duration_since(since))));
        }
        self.answer_measures(sample.answers);
        self.reconciler.reconcile(&self.registry, &self.pages, &self.sample);
        self.note_bypasses(now);
        self.answer_lists(sample.answers, now);
        self.shares.note(&self.registry, &self.pages, crate::arbiter::now_ns());
    }

    /// Somebody has waited in vain for the driver.
    pub(super) fn note_silence(&mut self) {
        if !std::mem::replace(&mut self.driver_hangs, true) {
            let text =
                "the driver doesn't answer (NVML): what jobs hold beside what they asked for isn't seen meanwhile";
            log::line(LogLevel::Warn, format_args!("{text}"));
        }
    }

    /// Has another thread ask a driver that has been silent for too long.
    pub(super) fn watch_driver(&mut self, now: Instant) {
        let Some(remedy) = self.sampler.watch(now) else { return };
        self.note_silence();
        let since = self.sampler.silence().map_or(now, |(since, _)| since);
        let silent = format!("it has not answered for {}", in_seconds(now.duration_since(since)));
        match remedy {
            Remedy::Replaced(left_behind) => {
                let behind = if left_behind == 1 { "one thread is" } else { &format!("{left_behind} threads are") };
                self.note_driver(format!("{silent}: {behind} left behind in it, and another one asks"));
            }
            // Told with the last of them, and once.
            Remedy::Full(left_behind) => {
                if !std::mem::replace(&mut self.driver_given_up, true) {
                    let text =
                        format!("{silent}: {left_behind} threads are left behind in it, and no more are started");
                    self.note_driver(format!("{text} until one comes back; see dmesg and nvidia-smi"));
                }
            }
            Remedy::NoThread => log::line(LogLevel::Error, format_args!("{silent}, and there is no thread to ask it")),
        }
    }

    fn note_driver(&mut self, reason: String) {
        self.record(AuditEvent { event: AuditKind::Driver, reason: Some(reason), ..AuditEvent::default() });
    }

    /// What is wrong with the driver now, for whoever looks at the devices.
    pub(super) fn driver_trouble(&self, now: Instant) -> Option<String> {
        let (since, replaced) = self.sampler.silence()?;
        let silent = now.duration_since(since);
        let asked = match replaced {
            0 => String::new(),
            1 => ", asked anew once".to_owned(),
            _ => format!(", asked anew {replaced} times"),
        };
        (silent >= SAMPLE_WAIT_MAX).then(|| format!("no answer from the driver for {}{asked}", in_seconds(silent)))
    }

    /// Lets go of devices, or uses them again.
    pub(super) fn drain(
        &mut self,
        selection: &str,
        drained: bool,
        actions: &mut Vec<Action>,
    ) -> Result<String, String> {
        let message = self.registry.drain(selection, drained, actions)?;
        let kept = self.store.keep_drained(self.registry.drained_uuids());
        self.sampler.set_drained(self.registry.drained());
        self.sampler.ask(Instant::now());
        Ok(kept.map_or_else(|error| format!("{message}; it is not on disk yet: {error}"), |()| message.clone()))
    }

    /// What the daemon before had let go of stays so.
    pub(super) fn take_drained(&mut self) {
        match self.store.drained() {
            Ok(uuids) if uuids.is_empty() => {}
            Ok(uuids) => {
                self.registry.set_drained(uuids);
                self.sampler.set_drained(self.registry.drained());
                // The list of devices has taken hold of all.
                self.sampler.ask(Instant::now());
                let reason = Some(format!("{}, as before", self.registry.drained_in_words()));
                let change = Some("drain".to_owned());
                self.record(AuditEvent { event: AuditKind::Changed, reason, change, ..AuditEvent::default() });
            }
            Err(error) => {
                let text = format!("which devices are drained can't be read: {error}; none is");
                log::line(LogLevel::Error, format_args!("{text}"));
            }
        }
    }
}

/// Whole seconds, or tenths of one where that says nothing.
fn in_seconds(time: Duration) -> String {
    if time < Duration::from_secs(10) {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{} s", time.as_secs())
    }
}
