//! Tables for people: aligned columns, plain, so that a pipe gets the same as a terminal.

use std::io::Write;

/// Where a column's text stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under a header.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: Vec<String>) {
        assert_eq!(row.len(), self.columns.len(), "a cell for each column");
        self.rows.push(row);
    }

    /// The table as text. The last column isn't padded.
    pub(crate) fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|at| self.rows.iter().map(|row| width(&row[at])).chain([self.columns[at].0.len()]).max().unwrap_or(0))
            .collect();
        let header = self.columns.iter().map(|(name, _)| *name).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(String::as_str).collect());
        let mut text = String::new();
        for row in std::iter::once(header).chain(rows) {
            let row: Vec<&str> = row;
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                let padding = " ".repeat(widths[at] - width(cell));
                match self.columns[at].1 {
                    Align::Left => line.push_str(&format!("{cell}{padding}")),
                    Align::Right => line.push_str(&format!("{padding}{cell}")),
                }
                line.push_str("  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn width(cell: &str) -> usize {
    cell.chars().count()
}

/// Prints to stdout. Who has stopped reading has seen enough.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("TENANT", Align::Left), ("PID", Align::Right), ("COMMAND", Align::Left)]);
        table.push(vec!["vision".to_owned(), "7".to_owned(), "python".to_owned()]);
        table.push(vec!["müller-and-co".to_owned(), "12345".to_owned(), "a".to_owned()]);
        assert_eq!(
            table.render(),
            "TENANT           PID  COMMAND\nvision             7  python\nmüller-and-co  12345  a\n"
        );
    }
}
