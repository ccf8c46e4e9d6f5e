//! A trace's canvas after some of its forwards, side by side in a picture that stands still: for papers, whose programs know no
//! animation and no style sheet.

use std::fmt::Write;

use demask::TraceLine;

use super::{BOX, Cell, MARGIN, Written, escaped, places, read, title, visible};

/// Width of a frame, in pixels.
const FRAME: usize = 380;
/// Colours of the paper, of text, of a mask, a token and a token that is new since the frame before.
const PAPER: &str = "#ffffff";
const INK: &str = "#1f2328";
const MASK: &str = "#d7dce2";
const TOKEN: &str = "#e6f4ea";
const FRESH: &str = "#8fd8a8";

/// Draws the canvas after so many forwards each; 0 is the canvas of masks.
///
/// # Errors
///
/// If the trace has no header, a canvas longer than any model's, or not so many forwards.
pub fn frames(lines: &[TraceLine], forwards: &[usize]) -> anyhow::Result<String> {
    let (cells, counts) = read(lines)?;
    let most = counts.len();
    if let Some(found) = forwards.iter().find(|forward| **forward > most) {
        anyhow::bail!("the trace has {most} forwards and no frame {found}: expected 0 to {most}");
    }
    let (places, height) = places(&cells, FRAME);
    let (width, title) = (FRAME * forwards.len(), escaped(&title(lines)));
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13">
<title>{title}</title>
<rect width="{width}" height="{height}" fill="{PAPER}"/>
"#
    );
    for (place, &forward) in forwards.iter().enumerate() {
        let before = place.checked_sub(1).map(|before| forwards[before]);
        let tokens: i64 = counts[..forward].iter().sum();
        let left = FRAME * place;
        let _ = writeln!(
            svg,
            r#"<g transform="translate({left} 0)"><text x="{MARGIN}" y="{}" fill="{INK}">forward {forward}, {tokens} tokens</text>"#,
            MARGIN + 10
        );
        for (cell, &at) in cells.iter().zip(&places) {
            draw(&mut svg, cell, at, forward, before);
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// Draws a position as it stands after so many forwards; `before` are those of the frame before.
fn draw(svg: &mut String, cell: &Cell, (x, y, width): (usize, usize, usize), forward: usize, before: Option<usize>) {
    let standing = cell.writes.iter().rfind(|written| written.forward.is_none_or(|by| by < forward));
    let text = standing.and_then(|written| written.text.as_deref());
    let is_new =
        |&Written { forward, .. }: &&Written| forward.is_some_and(|by| before.is_none_or(|before| by >= before));
    let fill = match text {
        None => MASK,
        Some(_) if before.is_some() && standing.as_ref().is_some_and(is_new) => FRESH,
        Some(_) => TOKEN,
    };
    let _ = write!(svg, r#"<rect x="{x}" y="{y}" width="{width}" height="{BOX}" rx="4" fill="{fill}"/>"#);
    if let Some(text) = text {
        let (middle, base) = (x + width / 2, y + BOX - 7);
        let _ = write!(
            svg,
            r#"<text x="{middle}" y="{base}" text-anchor="middle" fill="{INK}">{}</text>"#,
            escaped(&visible(text))
        );
    }
    svg.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TRACE, lines};
    use super::*;

    #[test]
    fn frames_stand_side_by_side_and_need_no_style_sheet() {
        let svg = frames(&lines(TRACE), &[0, 1, 2]).unwrap();
        assert!(svg.contains("width=\"1140\"") && !svg.contains("<style") && !svg.contains("var("), "{svg}");
        let panels: Vec<&str> = svg.split("<g transform").skip(1).collect();
        assert_eq!(panels.len(), 3);
        // Four positions: one is given, each forward fills one.
        for (panel, (masks, tokens, fresh)) in panels.iter().zip([(3, 1, 0), (2, 1, 1), (1, 2, 1)]) {
            assert_eq!(panel.matches(MASK).count(), masks, "{panel}");
            assert_eq!((panel.matches(TOKEN).count(), panel.matches(FRESH).count()), (tokens, fresh), "{panel}");
        }
        assert!(panels[1].contains("forward 1, 1 tokens") && panels[1].contains("&lt;b&gt;"));
        // What is there in the first frame is not new since another.
        assert_eq!(frames(&lines(TRACE), &[2]).unwrap().matches(FRESH).count(), 0);
    }

    #[test]
    fn a_frame_behind_the_last_forward_is_refused() {
        let error = frames(&lines(TRACE), &[0, 3]).unwrap_err().to_string();
        assert_eq!(error, "the trace has 2 forwards and no frame 3: expected 0 to 2");
    }
}
