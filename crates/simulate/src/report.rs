//! Tables as text and as JSON.

use crate::tables::{Cell, Table};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// As lines for people, columns aligned.
pub fn text(table: &Table) -> String {
    let mut lines: Vec<Vec<String>> = vec![table.columns.clone()];
    for row in &table.rows {
        lines.push(std::iter::once(row.label.clone()).chain(row.cells.iter().map(cell_text)).collect());
    }
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = format!("{}: {}\n", table.name, table.title);
    for line in &lines {
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            let _ = if column == 0 { write!(text, "  {cell:width$}") } else { write!(text, "  {cell:>width$}") };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    if !table.note.is_empty() {
        let _ = writeln!(text, "  ({})", table.note);
    }
    text
}

/// As JSON: rows with their cells by number of column, since heads can repeat.
pub fn json(table: &Table) -> Value {
    let rows = table.rows.iter().map(|row| {
        let cells: Vec<Value> = row.cells.iter().map(cell_json).collect();
        json!({ "label": row.label, "cells": cells })
    });
    json!({
        "name": table.name,
        "title": table.title,
        "columns": table.columns,
        "rows": rows.collect::<Vec<_>>(),
        "note": table.note,
    })
}

fn cell_text(cell: &Cell) -> String {
    match cell {
        Cell::Number(number, _) if !number.is_finite() => "-".into(),
        Cell::Number(number, decimals) => format!("{number:.decimals$}"),
        Cell::Words(words) => words.clone(),
        Cell::Nothing => "-".into(),
    }
}

fn cell_json(cell: &Cell) -> Value {
    match cell {
        // Not a number is null, as JSON has none.
        Cell::Number(number, _) => json!(number),
        Cell::Words(words) => json!(words),
        Cell::Nothing => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Row;

    fn table() -> Table {
        Table {
            name: "t",
            title: "Of nothing".into(),
            columns: vec!["what".into(), "n".into()],
            rows: vec![
                Row { label: "one".into(), cells: vec![Cell::Number(12.345, 1)] },
                Row { label: "three".into(), cells: vec![Cell::Nothing] },
            ],
            note: "",
        }
    }

    #[test]
    fn columns_are_aligned() {
        assert_eq!(text(&table()), "t: Of nothing\n  what      n\n  one    12.3\n  three     -\n");
    }

    #[test]
    fn json_has_numbers_and_nulls() {
        let json = json(&table());
        assert_eq!(json["rows"][0]["cells"][0], 12.345);
        assert_eq!(json["rows"][1], json!({ "label": "three", "cells": [null] }));
    }
}
