//! What new jobs get, in parts of one size (`slices`) and by the time of the week (`schedule`).

use super::raw::{RawDefaults, RawDocument, RawVariant, RawVariantDevice, Scalar};
use super::{DeviceRule, DocumentError, jobs_max, memory, percent, read, value};
use quota_core::{MemorySize, Percent};

/// Minutes of a day and of a week.
const DAY: u16 = 24 * 60;
const WEEK: u16 = 7 * DAY;
/// Variants one document may have.
const VARIANTS_MAX: usize = 32;

/// A minute of the week by the node's clock; 0 is Monday, 00:00.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Minute(u16);

impl Minute {
    /// `day` counts from Monday, 0 to 6.
    pub fn new(day: u8, hour: u8, minute: u8) -> Self {
        Self((u16::from(day) * DAY + u16::from(hour) * 60 + u16::from(minute)) % WEEK)
    }

    /// What the clock on the wall says, where the node is.
    pub fn now() -> Self {
        let now = jiff::Zoned::now();
        let part = |number: i8| u8::try_from(number).unwrap_or_default();
        Self::new(part(now.weekday().to_monday_zero_offset()), part(now.hour()), part(now.minute()))
    }
}

/// Other defaults for new jobs at some times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variant {
    /// What it is called.
    pub name: String,
    /// Minutes of the day, from (inclusive) and to (exclusive); past midnight where `to` is not after `from`.
    from: u16,
    to: u16,
    /// The days on which it begins; bit 0 is Monday.
    days: u8,
    /// What holds meanwhile instead: defaults and most jobs, and nothing else.
    pub devices: Vec<DeviceRule>,
}

impl Variant {
    /// True at that minute.
    pub fn holds(&self, Minute(minute): Minute) -> bool {
        let length = if self.to > self.from { self.to - self.from } else { self.to + DAY - self.from };
        let begins = (0..7).filter(|day| self.days >> day & 1 == 1).map(|day| day * DAY + self.from);
        begins.into_iter().any(|begin| (minute + WEEK - begin) % WEEK < length)
    }
}

/// What `slices` looks like.
const SLICES_FORM: &str = "a number and what each has, such as 4 x 20GiB + 25%";

/// The jobs that a device takes, and what each gets that asks for nothing.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct NewJobs {
    pub(super) jobs_max: Option<u32>,
    pub(super) memory: Option<MemorySize>,
    pub(super) compute: Option<Percent>,
    /// So many have that much each, and must have room.
    pub(super) sliced: bool,
}

/// Reads `slices`, or `defaults` and `max_jobs`.
pub(super) fn new_jobs(
    place: &str,
    slices: Option<&Scalar>,
    defaults: Option<&RawDefaults>,
    jobs: Option<&Scalar>,
) -> Result<NewJobs, DocumentError> {
    let Some(Scalar(text)) = slices else {
        return Ok(NewJobs {
            jobs_max: jobs_max(&format!("{place}.max_jobs"), jobs)?,
            memory: memory(&format!("{place}.defaults.memory"), defaults.and_then(|it| it.memory.as_ref()))?,
            compute: percent(&format!("{place}.defaults.compute"), defaults.and_then(|it| it.compute.as_ref()))?,
            sliced: false,
        });
    };
    let place = format!("{place}.slices");
    if defaults.is_some() || jobs.is_some() {
        return Err(value(&place, text, "it says what defaults and max_jobs say", "one of them"));
    }
    let (count, each) = text
        .split_once(['x', '×', '*'])
        .ok_or_else(|| value(&place, text, "it says not how many of what", SLICES_FORM))?;
    let (size, share) = each.split_once('+').map_or((each, None), |(size, share)| (size, Some(share)));
    let part = |text: &str| Scalar(text.trim().to_owned());
    let count = jobs_max(&place, Some(&part(count)))?;
    let slice = NewJobs {
        jobs_max: count,
        memory: memory(&place, Some(&part(size)))?,
        compute: percent(&place, share.map(part).as_ref())?,
        sliced: true,
    };
    let all = slice.compute.map_or(0, Percent::hundredths) * count.unwrap_or_default();
    if all > Percent::ALL.hundredths() {
        return Err(value(&place, text, "that is more than 100% of the time", SLICES_FORM));
    }
    Ok(slice)
}

pub(super) fn schedule(raw: &RawDocument) -> Result<Vec<Variant>, DocumentError> {
    let mut variants: Vec<Variant> = Vec::new();
    for (index, raw) in raw.schedule.iter().flatten().enumerate() {
        let place = format!("schedule[{index}]");
        let variant = variant(&place, raw)?;
        if variants.iter().any(|other| other.name == variant.name) {
            return Err(value(&format!("{place}.name"), &variant.name, "it is there twice", "different names"));
        }
        variants.push(variant);
    }
    if variants.len() > VARIANTS_MAX {
        return Err(value("schedule", &variants.len().to_string(), "there are too many", "at most 32"));
    }
    Ok(variants)
}

fn variant(place: &str, raw: &RawVariant) -> Result<Variant, DocumentError> {
    let time = |key: &str, scalar: &Scalar| {
        read(&format!("{place}.{key}"), Some(scalar), "a time such as 22:00", parse_time).map(Option::unwrap_or_default)
    };
    let days = read(&format!("{place}.days"), raw.days.as_ref(), DAYS_FORM, parse_days)?;
    let devices = raw.devices.iter().enumerate();
    Ok(Variant {
        name: raw.name.0.clone(),
        from: time("from", &raw.from)?,
        to: time("to", &raw.to)?,
        days: days.unwrap_or(0b111_1111),
        devices: devices
            .map(|(index, device)| variant_device(&format!("{place}.devices[{index}]"), device))
            .collect::<Result<_, _>>()?,
    })
}

fn variant_device(place: &str, raw: &RawVariantDevice) -> Result<DeviceRule, DocumentError> {
    let new = new_jobs(place, raw.slices.as_ref(), raw.defaults.as_ref(), raw.max_jobs.as_ref())?;
    let select = raw.select.as_ref().map_or_else(|| "all".to_owned(), |scalar| scalar.0.clone());
    Ok(DeviceRule { select, ..DeviceRule::default() }.with(new))
}

fn parse_time(text: &str) -> Result<u16, &'static str> {
    let number = |text: &str, most: u16| {
        let legal = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|number| legal && *number < most)
    };
    let (hour, minute) = text.split_once(':').ok_or("it is no time of the day")?;
    let minute = number(minute, 60).filter(|_| minute.len() == 2);
    number(hour, 24).zip(minute).map(|(hour, minute)| hour * 60 + minute).ok_or("it is no time of the day")
}

/// What days look like.
const DAYS_FORM: &str = "days such as mon-fri or sat,sun";

fn parse_days(text: &str) -> Result<u8, &'static str> {
    const NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let day = |name: &str| {
        NAMES.iter().position(|known| name.trim().eq_ignore_ascii_case(known)).ok_or("there is no such day")
    };
    let mut days = 0;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        let length = (last + 7 - first) % 7;
        days |= (0..=length).fold(0, |days, step| days | 1 << ((first + step) % 7));
    }
    Ok(days)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;

    fn variant(days: &str, from: &str, to: &str) -> Variant {
        let text = format!("schedule: [{{name: v, days: \"{days}\", from: \"{from}\", to: \"{to}\", devices: []}}]");
        Document::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}")).variants.remove(0)
    }

    #[test]
    fn a_variant_holds_at_its_times_past_midnight_and_past_sunday() {
        let (mon, fri, sat, sun) = (0, 4, 5, 6);
        let night = variant("mon-fri", "22:00", "6:00");
        for (day, hour, minute, wanted) in [
            (mon, 21, 59, false),
            (mon, 22, 0, true),
            (mon, 5, 59, false),
            (1, 5, 59, true),
            (1, 6, 0, false),
            (fri, 23, 0, true),
            (sat, 5, 0, true),
            (sat, 23, 0, false),
        ] {
            assert_eq!(night.holds(Minute::new(day, hour, minute)), wanted, "{day} {hour}:{minute}");
        }
        let weekend = variant("sat,SUN", "00:00", "00:00");
        assert!(weekend.holds(Minute::new(sat, 0, 0)) && weekend.holds(Minute::new(sun, 23, 59)));
        assert!(!weekend.holds(Minute::new(mon, 0, 0)) && !weekend.holds(Minute::new(fri, 23, 59)));
        let sunday = variant("sun", "23:00", "01:00");
        assert!(sunday.holds(Minute::new(sun, 23, 30)) && sunday.holds(Minute::new(mon, 0, 59)));
        assert!(!sunday.holds(Minute::new(mon, 1, 0)));
        let around = variant("fri-mon", "08:00", "09:00");
        assert!([fri, sat, sun, mon].iter().all(|day| around.holds(Minute::new(*day, 8, 30))));
        assert!([1, 2, 3].iter().all(|day| !around.holds(Minute::new(*day, 8, 30))));
    }

    #[test]
    fn the_clock_on_the_wall_is_read() {
        assert!(Minute::now() < Minute(WEEK));
    }

    #[test]
    fn slices_are_a_number_and_what_each_has() {
        for text in ["4 x 20GiB + 25%", "4×20GiB+25", "4*20GiB + 25.0%"] {
            let document = Document::parse(&format!("devices: [{{slices: \"{text}\"}}]")).expect(text);
            let rule = &document.devices[0];
            let memory = Some(MemorySize::Absolute(quota_core::Bytes(20 << 30)));
            let compute = Percent::from_hundredths(2500);
            assert_eq!(
                (rule.jobs_max, rule.default_memory, rule.default_compute),
                (Some(4), memory, compute),
                "{text}"
            );
        }
        for (text, wanted) in [
            (
                "devices: [{slices: 20GiB}]",
                "devices[0].slices: \"20GiB\": it says not how many of what; expected a number",
            ),
            ("devices: [{slices: 0 x 20GiB}]", "out of range"),
            ("devices: [{slices: 4 x 20Q}]", "the unit is unknown"),
            ("devices: [{slices: 4 x 20GiB + 30%}]", "more than 100% of the time"),
            ("devices: [{slices: 4 x 20GiB, max_jobs: 3}]", "it says what defaults and max_jobs say"),
            ("schedule: [{name: a, from: \"25:00\", to: \"6:00\", devices: []}]", "schedule[0].from: \"25:00\""),
            ("schedule: [{name: a, from: \"2:5\", to: \"6:00\", devices: []}]", "expected a time such as 22:00"),
            ("schedule: [{name: a, days: mo, from: \"2:00\", to: \"6:00\", devices: []}]", "no such day"),
            ("schedule: [{name: a, from: \"2:00\", to: \"6:00\", devices: [{memory_reserve: 1GiB}]}]", "unknown key"),
            ("schedule: [{name: a, from: \"2:00\", devices: []}]", "missing field"),
        ] {
            let error = Document::parse(text).expect_err(text).to_string();
            assert!(error.contains(wanted) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
