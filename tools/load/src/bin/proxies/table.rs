//! Prints the figures as a table of Markdown.

use crate::cases::Case;
use crate::load::Figure;

const HEADS: [&str; 7] = [
    "case, connections x requests on each",
    "per s: backend alone / gateway / nginx / HAProxy",
    "of nginx",
    "of HAProxy",
    "p50, µs",
    "p99, µs",
    "CPU of each request, µs",
];
const WIDTHS: [usize; 7] = [33, 48, 8, 10, 29, 29, 25];

pub(crate) fn print_head() {
    print_cells(&HEADS.map(str::to_owned));
    println!("{}|", WIDTHS.map(|width| format!("|{}", "-".repeat(width + 2))).concat());
}

/// Of the backend alone, the gateway, nginx and HAProxy.
pub(crate) fn print_row(case: &Case, figures: &[Figure]) {
    let of = |other: &Figure| format!("{:.2}", figures[1].rate / other.rate);
    let each = |width: usize, value: fn(&Figure) -> f64| {
        figures.iter().map(|figure| format!("{:>width$.0}", value(figure))).collect::<Vec<_>>().join(" / ")
    };
    print_cells(&[
        case.to_string(),
        each(6, |figure| figure.rate),
        of(&figures[2]),
        of(&figures[3]),
        each(5, |figure| figure.p50),
        each(5, |figure| figure.p99),
        each(4, |figure| figure.cpu),
    ]);
}

fn print_cells(cells: &[String; 7]) {
    let cells = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("| {cell:width$} "));
    println!("{}|", cells.collect::<String>());
}
