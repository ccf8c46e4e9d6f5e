//! A trace's canvas as a picture that moves: an SVG in which each token appears with the forward that committed it.
//!
//! Boxes have the places and widths that the finished text gives them, so that nothing jumps. Everything that moves is an
//! animation of style sheets, which pictures in web pages run without scripts; where nothing moves (print, or readers who
//! asked for less motion) the finished canvas is seen.

mod frames;

use std::fmt::Write;

use console::measure_text_width;
use demask::TraceLine;
use demask::trace::Given;

pub use frames::frames;

use super::{bounded, harmless, token_text};

/// Width of a column of text, of the space inside and between boxes, and of the page, in pixels.
const COLUMN: usize = 8;
const INSIDE: usize = 4;
const BETWEEN: usize = 3;
const MARGIN: usize = 16;
const PAGE: usize = 760;
/// Height of a box, and from one line of boxes to the next.
const BOX: usize = 22;
const LINE: usize = 27;
/// An end token, or another special one: a sign that every font has.
const END: &str = "\u{b7}";
/// Seconds that the finished canvas is shown.
const REST: f64 = 3.0;

/// Forwards that are shown in a second, where no other speed is asked for.
pub const SPEED: f64 = 10.0;

/// A position after the prompt.
#[derive(Clone, Default)]
struct Cell {
    /// Tokens and masks written there, in their order; empty: it stays a mask.
    writes: Vec<Written>,
}

/// A token that was written, or a mask that took its place.
#[derive(Clone)]
struct Written {
    /// The token's text; none: a mask again.
    text: Option<String>,
    /// The forward that wrote it, from 0; none: it was there before.
    forward: Option<usize>,
}

impl Cell {
    /// The text that stands there in the end.
    fn text(&self) -> Option<&str> {
        self.writes.last()?.text.as_deref()
    }

    /// Columns of the widest text.
    fn columns(&self) -> usize {
        let texts = self.writes.iter().filter_map(|written| written.text.as_deref());
        texts.map(|text| measure_text_width(&visible(text))).max().unwrap_or(1).max(1)
    }
}

/// Returns a trace's model, decoder and cache; empty if it has no header.
pub fn title(lines: &[TraceLine]) -> String {
    match lines.first() {
        Some(TraceLine::Header { model, decoder, cache, .. }) => format!("{model}, decoder {decoder}, cache {cache}"),
        _ => String::new(),
    }
}

/// Returns whether a picture shows a line. It shows no predictions and no drafts.
pub fn shows(line: &TraceLine) -> bool {
    matches!(
        line,
        TraceLine::Header { .. } | TraceLine::Commit { .. } | TraceLine::Replace { .. } | TraceLine::Step { .. }
    )
}

/// Draws a trace, so many forwards a second.
///
/// # Errors
///
/// If the trace has no header, or a canvas longer than any model's.
pub fn animation(lines: &[TraceLine], speed: f64) -> anyhow::Result<String> {
    let (cells, counts) = read(lines)?;
    // The canvas of masks is shown as long as any other.
    let seconds = (counts.len() + 1) as f64 / speed + REST;
    let at = |forward: usize| (forward + 1) as f64 / speed / seconds * 100.0;
    let mut boxes = String::new();
    let (places, height) = places(&cells, PAGE);
    for (cell, &place) in cells.iter().zip(&places) {
        draw(&mut boxes, cell, place);
    }
    let mut svg = head(&title(lines), height, seconds);
    for forward in 0..counts.len() {
        appearing(&mut svg, forward, at(forward), at(forward + 1), forward + 1 == counts.len());
    }
    svg.push_str("</style>\n");
    caption(&mut svg, &title(lines), height, &counts);
    svg.push_str(&boxes);
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// Places of boxes on a page of this width, each with its own width, and the page's height.
fn places(cells: &[Cell], page: usize) -> (Vec<(usize, usize, usize)>, usize) {
    let (mut x, mut y) = (MARGIN, MARGIN + LINE);
    let mut places = Vec::with_capacity(cells.len());
    for cell in cells {
        let width = cell.columns() * COLUMN + 2 * INSIDE;
        if x + width > page - MARGIN && x > MARGIN {
            (x, y) = (MARGIN, y + LINE);
        }
        places.push((x, y, width));
        x += width + BETWEEN;
        if cell.text().is_some_and(|text| text.ends_with('\n')) {
            (x, y) = (MARGIN, y + LINE);
        }
    }
    (places, y + LINE + MARGIN)
}

/// Reads the cells of a trace, and how many tokens more there are after each of its forwards.
fn read(lines: &[TraceLine]) -> anyhow::Result<(Vec<Cell>, Vec<i64>)> {
    let Some((TraceLine::Header { prompt, length, given, .. }, rest)) = lines.split_first() else {
        anyhow::bail!("the trace has no header: expected what generate --trace wrote");
    };
    bounded(*length)?;
    let mut cells = vec![Cell::default(); *length];
    let mut put = |position: u32, token: Option<u32>, text: &Option<String>, forward: Option<usize>| {
        if let Some(cell) = (position as usize).checked_sub(prompt.len()).and_then(|index| cells.get_mut(index)) {
            let text = token.map(|token| token_text(token, text.as_deref()));
            cell.writes.push(Written { text, forward });
        }
    };
    for Given { position, token, text } in given {
        put(*position, Some(*token), text, None);
    }
    let (mut counts, mut count) = (Vec::new(), 0);
    for line in rest {
        match line {
            TraceLine::Commit { position, token, text, .. } => {
                put(*position, Some(*token), text, Some(counts.len()));
                count += 1;
            }
            TraceLine::Replace { at, to, text, .. } => {
                put(*at, *to, text, Some(counts.len()));
                count -= i64::from(to.is_none());
            }
            TraceLine::Step { .. } => counts.push(std::mem::take(&mut count)),
            _ => {}
        }
    }
    Ok((cells, counts))
}

/// Writes a token so that all of it is seen: spaces, the end of a line, the end of the text.
fn visible(text: &str) -> String {
    if text.starts_with("<|") && text.ends_with("|>") {
        return END.to_owned();
    }
    harmless(text).replace(' ', "\u{a0}").replace('\n', "\u{21b5}")
}

/// Draws a position's box, and its written tokens above it, the last on top.
fn draw(svg: &mut String, cell: &Cell, (x, y, width): (usize, usize, usize)) {
    let place = format!(r#"x="{x}" y="{y}" width="{width}" height="{BOX}" rx="4""#);
    let _ = write!(svg, r#"<rect class="m" {place}/>"#);
    let (middle, base) = (x + width / 2, y + BOX - 7);
    for Written { text, forward } in &cell.writes {
        let class = forward.map_or_else(|| "g".to_owned(), |forward| format!("f{forward}"));
        let _ = match text.as_deref().map(visible) {
            Some(text) => write!(
                svg,
                r#"<g class="{class}"><rect class="t" {place}/><text x="{middle}" y="{base}" text-anchor="middle">{}</text></g>"#,
                escaped(&text)
            ),
            None => write!(svg, r#"<g class="{class}"><rect class="m" {place}/></g>"#),
        };
    }
    svg.push('\n');
}

/// Writes the beginning of the file, up to the rules that are the same for all forwards.
fn head(title: &str, height: usize, seconds: f64) -> String {
    let title = escaped(title);
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PAGE} {height}" width="{PAGE}" height="{height}" role="img" aria-label="{title}: masks become text, forward by forward">
<style>
svg {{ font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; --page: #ffffff; --ink: #1f2328; --dim: #656d76; --mask: #d7dce2; --token: #e6f4ea; --fresh: #8fd8a8; --edge: #d0d7de; }}
@media (prefers-color-scheme: dark) {{ svg {{ --page: #0d1117; --ink: #e6edf3; --dim: #8d96a0; --mask: #30363d; --token: #12361f; --fresh: #2a7a45; --edge: #30363d; }} }}
.page {{ fill: var(--page); stroke: var(--edge); }}
text {{ fill: var(--ink); }}
.dim {{ fill: var(--dim); }}
.m {{ fill: var(--mask); }}
.t {{ fill: var(--token); }}
.c {{ visibility: hidden; }}
.c.last {{ visibility: visible; }}
@media (prefers-reduced-motion: no-preference) {{ [class^="f"], [class^="f"] rect, .c {{ animation-duration: {seconds:.3}s; animation-iteration-count: infinite; animation-timing-function: step-end; }} }}
"#
    )
}

/// Writes the rules of what one forward committed: its tokens appear and stand out until the next one's do, and its line
/// in the caption stands as long (the last one's to the end). Times are in percent of the whole.
fn appearing(svg: &mut String, forward: usize, begins: f64, ends: f64, last: bool) {
    let gone = if last { String::new() } else { format!(" {ends:.2}%, 100% {{ visibility: hidden; }}") };
    let _ = writeln!(
        svg,
        "@keyframes a{forward} {{ 0% {{ visibility: hidden; }} {begins:.2}%, 100% {{ visibility: visible; }} }} .f{forward} {{ \
         animation-name: a{forward}; }}\n\
         @keyframes n{forward} {{ {begins:.2}% {{ fill: var(--fresh); }} {ends:.2}%, 100% {{ fill: var(--token); }} }} \
         .f{forward} .t {{ animation-name: n{forward}; }}\n\
         @keyframes b{forward} {{ 0% {{ visibility: hidden; }} {begins:.2}% {{ visibility: visible; }}{gone} }} \
         .c{forward} {{ animation-name: b{forward}; }}"
    );
}

/// Writes the line above the canvas: the run, and the forwards so far.
fn caption(svg: &mut String, title: &str, height: usize, counts: &[i64]) {
    let (line, right) = (MARGIN + 10, PAGE - MARGIN);
    let _ = writeln!(
        svg,
        r#"<rect class="page" x="0.5" y="0.5" width="{}" height="{}" rx="8"/><text class="dim" x="{MARGIN}" y="{line}">{}</text>"#,
        PAGE - 1,
        height - 1,
        escaped(title)
    );
    let mut tokens = 0;
    for (forward, count) in counts.iter().enumerate() {
        tokens += count;
        let last = if forward + 1 == counts.len() { " last" } else { "" };
        let _ = writeln!(
            svg,
            r#"<text class="c c{forward}{last}" x="{right}" y="{line}" text-anchor="end">forward {}, {tokens} tokens</text>"#,
            forward + 1
        );
    }
}

/// Writes text so that it is no markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use demask::trace::read_trace;

    use super::*;

    pub(super) const TRACE: &str = r#"{"event":"header","version":2,"model":"m & n","prompt":[1,2],"length":4,"decoder":"static","cache":"none","seed":0,"given":[{"position":3,"token":7,"text":" is"}]}
{"step":0,"position":2,"token":5,"confidence":0.9,"text":"<b>"}
{"event":"step","step":0,"nfe":1,"rows":6,"drafts":0,"accepted":0,"rejected":0}
{"step":1,"position":4,"token":6,"confidence":0.9,"text":"<|end|>"}
{"event":"step","step":1,"nfe":2,"rows":6,"drafts":0,"accepted":0,"rejected":0}
"#;

    pub(super) fn lines(trace: &str) -> Vec<TraceLine> {
        read_trace(Cursor::new(trace.to_owned())).unwrap()
    }

    #[test]
    fn each_token_appears_with_its_forward() {
        let svg = animation(&lines(TRACE), 2.0).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        // Two forwards and the masks before them, half a second each, and a rest of three.
        assert!(svg.contains("animation-duration: 4.500s"));
        assert!(
            svg.contains("@keyframes a0 { 0% { visibility: hidden; } 11.11%, 100% { visibility: visible; } }"),
            "{svg}"
        );
        assert!(
            svg.contains("@keyframes a1 { 0% { visibility: hidden; } 22.22%, 100% { visibility: visible; } }"),
            "{svg}"
        );
        assert!(svg.contains("forward 1, 1 tokens") && svg.contains("forward 2, 2 tokens"));
        // Four boxes; what was given does not move, the last one stays a mask.
        assert_eq!(svg.matches("<rect class=\"m\"").count(), 4);
        assert!(svg.contains("<g class=\"g\">") && svg.contains(">\u{a0}is</text>"));
        assert_eq!(svg.matches("<rect class=\"t\"").count(), 3);
        assert!(svg.contains(">\u{b7}</text>") && !svg.contains("&lt;|end"), "ends are shown as one sign");
    }

    #[test]
    fn tokens_that_change_are_drawn_one_over_the_other() {
        let changes = r#"{"event":"replace","step":2,"at":2,"from":5,"to":8,"confidence":0.9,"text":"much longer"}
{"event":"replace","step":2,"at":4,"from":6,"to":null,"confidence":0.1}
{"event":"step","step":2,"nfe":3,"rows":6,"drafts":0,"accepted":0,"rejected":0}
"#;
        let svg = animation(&lines(&(TRACE.to_owned() + changes)), 2.0).unwrap();
        let boxes: Vec<&str> = svg.lines().filter(|line| line.starts_with("<rect class=\"m\"")).collect();
        let drawn = |line: &str, part: &str| line.find(part).unwrap_or_else(|| panic!("{part} in {line}"));
        assert!(drawn(boxes[0], "&lt;b&gt;") < drawn(boxes[0], "much\u{a0}longer"));
        assert!(drawn(boxes[0], "class=\"f0\"") < drawn(boxes[0], "class=\"f2\"") && boxes[0].contains("width=\"96\""));
        assert!(boxes[2].ends_with("rx=\"4\"/></g>") && boxes[2].contains("<g class=\"f2\"><rect class=\"m\""));
        assert!(svg.contains("forward 2, 2 tokens") && svg.contains("forward 3, 1 tokens"));
    }

    #[test]
    fn no_text_becomes_markup() {
        let svg = animation(&lines(TRACE), 2.0).unwrap();
        assert!(svg.contains("&lt;b&gt;") && !svg.contains("<b>"));
        assert!(svg.contains("m &amp; n, decoder static"));
    }

    #[test]
    fn boxes_stay_on_the_page() {
        let mut trace = TRACE.lines().next().unwrap().replace("\"length\":4", "\"length\":200") + "\n";
        for position in 4..202 {
            let _ = writeln!(
                trace,
                "{{\"step\":0,\"position\":{position},\"token\":1,\"confidence\":1.0,\"text\":\" word\"}}"
            );
        }
        let svg = animation(&lines(&trace), 1.0).unwrap();
        let number = |rect: &str, name: &str| -> usize {
            let value = rect.split_once(&format!("{name}=\"")).unwrap().1;
            value.split('"').next().unwrap().parse().unwrap()
        };
        let rects: Vec<&str> = svg.split("<rect class=\"m\"").skip(1).collect();
        assert_eq!(rects.len(), 200);
        assert!(rects.iter().all(|rect| number(rect, "x") + number(rect, "width") <= PAGE - MARGIN));
    }

    #[test]
    fn traces_without_a_header_are_refused() {
        let error = animation(&[], 1.0).unwrap_err().to_string();
        assert_eq!(error, "the trace has no header: expected what generate --trace wrote");
        let long = TRACE.replace("\"length\":4", "\"length\":99999999");
        assert!(animation(&lines(&long), 1.0).unwrap_err().to_string().contains("expected at most"));
    }
}
