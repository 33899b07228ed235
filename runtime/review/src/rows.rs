//! Tables of results in Markdown: their rows, and the rows that a change touches.

use std::collections::HashMap;

use similar::{ChangeTag, TextDiff};

/// Longest line that is compared, in bytes; a longer one counts as other text.
const LINE_BYTES_MAX: usize = 10_000;

/// The column of a table of results that names the vendor.
const VENDOR_COLUMN: &str = "vendor";
/// The column with the link to the record.
const RECORD_COLUMN: &str = "record";
/// A column that only a table of trainings has.
const TRAINING_COLUMN: &str = "*p_core";

/// What a changed line of a file with a table of results is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChangedLine {
    /// A row of this vendor.
    Row(String),
    /// Anything else.
    Text,
}

/// Returns the changed lines of a file, each with its number after the change (for a removed line, that of the line that
/// follows it). Empty lines, the head of the table and a line that says that there are no results are left out.
pub(super) fn changed_lines(before: &str, after: &str) -> Vec<(usize, ChangedLine)> {
    let [vendors_before, vendors_after] = [before, after].map(vendors_of_rows);
    let diff = TextDiff::from_lines(before, after);
    let mut line = 1;
    let mut found = Vec::new();
    for change in diff.iter_all_changes() {
        let vendor = match (change.old_index(), change.new_index()) {
            (Some(index), None) => vendors_before.get(&index),
            (_, index) => index.and_then(|index| vendors_after.get(&index)),
        };
        if change.tag() != ChangeTag::Equal && !is_neutral(change.value().trim()) {
            found.push((line, vendor.map_or(ChangedLine::Text, |vendor| ChangedLine::Row(vendor.clone()))));
        }
        line += usize::from(change.tag() != ChangeTag::Delete);
    }
    found
}

/// A row of a table of results, with its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResultRow {
    pub(super) line: usize,
    pub(super) columns: Columns,
    pub(super) cells: Vec<String>,
}

impl ResultRow {
    /// Returns the rows of all tables of results in a text.
    pub(super) fn find_all(text: &str) -> Vec<ResultRow> {
        let of_table = |ResultTable { columns, rows }| {
            rows.into_iter().map(move |(line, cells)| ResultRow { line, columns: Columns::clone(&columns), cells })
        };
        ResultTable::find_all(text).into_iter().flat_map(of_table).collect()
    }

    /// Returns the path of the record to which the row has a link. `folder` is that of the file with the table.
    pub(super) fn record(&self, folder: &str) -> Option<String> {
        let at = self.columns.0.iter().position(|name| name == RECORD_COLUMN)?;
        Some(resolve(folder, link_target(self.cells.get(at)?)?))
    }

    fn is_same(&self, other: &ResultRow) -> bool {
        (&self.columns, &self.cells) == (&other.columns, &other.cells)
    }
}

/// Returns the rows that a change adds and those that it removes; a changed row counts as both. Neither the layout nor the order of
/// rows is a change.
pub(super) fn changed_rows(before: &str, after: &str) -> (Vec<ResultRow>, Vec<ResultRow>) {
    let (mut removed, mut added) = (ResultRow::find_all(before), Vec::new());
    for row in ResultRow::find_all(after) {
        match removed.iter().position(|old| old.is_same(&row)) {
            Some(at) => drop(removed.swap_remove(at)),
            None => added.push(row),
        }
    }
    (added, removed)
}

/// Returns the vendor of each row of the tables of results in a text, by the index of its line. Tables that have no results
/// contain text.
fn vendors_of_rows(text: &str) -> HashMap<usize, String> {
    let tables = ResultTable::find_all(text).into_iter();
    let rows = tables.flat_map(|ResultTable { columns, rows }| {
        let column = columns.0.iter().position(|name| name == VENDOR_COLUMN);
        rows.into_iter()
            .map(move |(line, cells)| (line - 1, cells.get(column.unwrap_or_default()).cloned().unwrap_or_default()))
    });
    rows.collect()
}

fn is_neutral(text: &str) -> bool {
    let is_head = cells(text).is_some_and(|cells| Columns::of(&cells).is_some());
    let is_rule = text.starts_with('|') && text.chars().all(|c| ['|', '-', ':', ' '].contains(&c));
    text.is_empty() || text == "None yet." || is_head || is_rule
}

/// Returns the cells of a row; `None` for a line that is no row.
pub(super) fn cells(line: &str) -> Option<Vec<String>> {
    let line = line.trim().strip_prefix('|')?;
    let line = line.strip_suffix('|').unwrap_or(line);
    let escaped = line.replace(r"\|", "\0");
    Some(escaped.split('|').map(|cell| cell.trim().replace('\0', r"\|")).collect())
}

/// The columns of a table of results, as its head names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns(pub(super) Vec<String>);

impl Columns {
    /// Returns the columns of a head; `None` for another row.
    fn of(cells: &[String]) -> Option<Columns> {
        let has = |name: &str| cells.iter().any(|cell| cell == name);
        (has(VENDOR_COLUMN) && has(RECORD_COLUMN)).then(|| Columns(cells.to_vec()))
    }

    /// Returns whether the rows are those of trainings.
    pub(super) fn are_of_training(&self) -> bool {
        self.0.iter().any(|name| name == TRAINING_COLUMN)
    }
}

/// The table of results of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResultTable {
    pub(super) columns: Columns,
    /// The rows, each with its line.
    pub(super) rows: Vec<(usize, Vec<String>)>,
}

impl ResultTable {
    /// Finds the tables of results in a text: those with the columns `vendor` and `record`.
    pub(super) fn find_all(text: &str) -> Vec<ResultTable> {
        let mut tables: Vec<ResultTable> = Vec::new();
        let mut is_inside = false;
        for (number, line) in (1..).zip(text.lines()) {
            let Some(cells) = cells(line).filter(|_| line.len() <= LINE_BYTES_MAX) else {
                is_inside = false;
                continue;
            };
            if let Some(columns) = Columns::of(&cells) {
                tables.push(ResultTable { columns, rows: Vec::new() });
                is_inside = true;
            } else if let Some(table) = tables.last_mut().filter(|_| is_inside)
                && !is_neutral(line.trim())
            {
                table.rows.push((number, cells));
            }
        }
        tables
    }

    /// Returns the row with a link to a file, and its line. `folder` is that of the file with the table.
    pub(super) fn row_of(&self, record: &str, folder: &str) -> Option<(usize, &[String])> {
        let links =
            |row: &[String]| row.iter().any(|cell| link_target(cell).is_some_and(|to| resolve(folder, to) == record));
        self.rows.iter().find(|(_, row)| links(row)).map(|(line, row)| (*line, row.as_slice()))
    }
}

fn link_target(cell: &str) -> Option<&str> {
    cell.split_once("](")?.1.strip_suffix(')')
}

/// Returns the path to which a relative link leads from a folder.
fn resolve(folder: &str, link: &str) -> String {
    let mut names: Vec<&str> = folder.split('/').filter(|name| !name.is_empty()).collect();
    for name in link.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "## Results\n\n| vendor | compiler | record |\n|---|---|---|\n";

    #[test]
    fn changed_rows_belong_to_the_vendor_that_their_first_cell_names() {
        let before = format!("# tiny\n{HEAD}| acme | a | [x](r/x.json) |\n| other | b | [y](r/y.json) |\n");
        let after =
            before.replace("| other | b", "| other | c").replace("# tiny", "# Tiny") + "| acme | d | [z](r/z.json) |\n";
        let row = |vendor: &str| ChangedLine::Row(vendor.to_owned());
        assert_eq!(
            changed_lines(&before, &after),
            [(1, ChangedLine::Text), (1, ChangedLine::Text), (7, row("other")), (7, row("other")), (8, row("acme"))]
                .map(|(line, kind)| (line, kind))
        );
        let other_table = "# tiny\n\n| what | where |\n|---|---|\n| input | x |\n";
        assert_eq!(changed_lines("# tiny\n", other_table)[1..], [(5, ChangedLine::Text)]);
        assert_eq!(
            changed_lines("## Results\n\nNone yet.\n", &format!("{HEAD}| acme | a | x |\n")),
            [(5, row("acme"))]
        );
    }

    #[test]
    fn a_row_is_found_by_its_link_to_the_record() {
        let text =
            format!("{HEAD}| acme | a\\|b | [x](../../vendors/acme/r.json) |\n\n| vendor | other |\n| x | y |\n");
        let tables = ResultTable::find_all(&text);
        assert_eq!(tables.len(), 1);
        let (line, row) = tables[0].row_of("vendors/acme/r.json", "scripts/tiny").unwrap();
        assert_eq!((line, row[1].as_str()), (5, "a\\|b"));
        assert_eq!(tables[0].row_of("vendors/acme/s.json", "scripts/tiny"), None);
    }
}
