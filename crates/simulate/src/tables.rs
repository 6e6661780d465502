//! The tables of the compute design, section 6, made anew.

mod contests;
mod fairness;
mod reasons;
mod service;

use crate::outcome::Outcome;
use crate::policy::Plan;
use crate::scenario::Scenario;
use crate::scenarios::{Base, suited};
use crate::world::simulate;
use std::cell::Cell as Counter;

/// A table that can be asked for.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name it is asked for by.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    make: fn(&Run<'_>) -> Table,
}

/// All tables.
pub const TABLES: [Entry; 11] = [
    Entry { name: "weights", about: "3:1, both busy: every policy", make: fairness::weights },
    Entry { name: "mixes", about: "5:3:2, 8:4:2:1:1, other kernel lengths", make: fairness::mixes },
    Entry { name: "quantum", about: "the length of turns", make: fairness::quantum },
    Entry { name: "caps", about: "hard caps", make: fairness::caps },
    Entry { name: "latency", about: "requests of 4 ms beside a busy batch job", make: service::latency },
    Entry { name: "long", about: "long kernels", make: service::long },
    Entry { name: "makespan", about: "two batch jobs in phase", make: contests::makespan },
    Entry { name: "guarantee", about: "40 % against seven greedy ones", make: contests::guarantee },
    Entry { name: "adversaries", about: "those who try to get more than their half", make: contests::adversaries },
    Entry { name: "streams", about: "several streams with events between them", make: contests::streams },
    Entry { name: "reasons", about: "ours without one of its rules at a time", make: reasons::reasons },
];

/// A table.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub title: String,
    /// Heads of the columns; the first is that of the labels.
    pub columns: Vec<String>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// What else is to be said.
    pub note: &'static str,
}

/// A row.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// What it is of.
    pub label: String,
    /// Its cells.
    pub cells: Vec<Cell>,
}

/// A cell.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// A number with so many decimals.
    Number(f64, usize),
    /// Words.
    Words(String),
    /// Nothing to say.
    Nothing,
}

/// How tables are made.
pub struct Run<'a> {
    seed: u64,
    seconds: Option<u64>,
    progress: &'a dyn Fn(&str),
    simulated_s: Counter<f64>,
}

impl<'a> Run<'a> {
    /// With this seed; so many seconds a scenario instead of its own number; `progress` is told of each row.
    pub fn new(seed: u64, seconds: Option<u64>, progress: &'a dyn Fn(&str)) -> Self {
        Self { seed, seconds, progress, simulated_s: Counter::new(0.0) }
    }

    /// The table of that name.
    pub fn table(&self, entry: &Entry) -> Table {
        (entry.make)(self)
    }

    /// Seconds that were simulated so far.
    pub fn simulated_s(&self) -> f64 {
        self.simulated_s.get()
    }

    fn base(&self, seconds: u64) -> Base {
        Base { seed: self.seed, seconds: self.seconds.unwrap_or(seconds) }
    }

    fn simulate(&self, label: &str, scenario: &Scenario, plan: Plan) -> Outcome {
        (self.progress)(label);
        let outcome = simulate(&suited(scenario.clone(), plan), plan);
        self.simulated_s.set(self.simulated_s.get() + outcome.length_s());
        outcome
    }

    /// A row: what `cells` makes of `scenario` under `plan`.
    fn row(&self, label: &str, scenario: &Scenario, plan: Plan, cells: impl Fn(&Outcome) -> Vec<Cell>) -> Row {
        Row { label: label.into(), cells: cells(&self.simulate(label, scenario, plan)) }
    }
}

/// The entry of that name.
pub fn entry(name: &str) -> Option<&'static Entry> {
    TABLES.iter().find(|entry| entry.name == name)
}

fn columns(heads: &[&str]) -> Vec<String> {
    heads.iter().map(|head| (*head).into()).collect()
}

fn whole(number: f64) -> Cell {
    Cell::Number(number, 0)
}

fn tenth(number: f64) -> Cell {
    Cell::Number(number, 1)
}

fn fine(number: f64) -> Cell {
    Cell::Number(number, 2)
}
