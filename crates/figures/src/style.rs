//! The house's colours, on bright paper and on dark. A picture is drawn for bright paper; where the reader prefers a
//! dark scheme, a style sheet inside the picture replaces paper, ink, grid and the like. Colours of series are of
//! middle brightness and serve on both.

use std::fmt::Write;

use plotters::style::RGBColor;

/// Background colour.
pub const PAPER: RGBColor = RGBColor(255, 255, 255);
/// Titles and labels of points.
pub const INK: RGBColor = RGBColor(32, 36, 43);
/// Numbers and names of axes.
pub const MUTED: RGBColor = RGBColor(91, 100, 112);
/// Lines of the grid.
pub const GRID: RGBColor = RGBColor(227, 230, 234);

/// Each colour of paper and ink, and what takes its place in a dark scheme.
const DARK: &[(RGBColor, RGBColor)] = &[
    (PAPER, RGBColor(20, 23, 28)),
    (INK, RGBColor(224, 228, 234)),
    (MUTED, RGBColor(154, 163, 175)),
    (GRID, RGBColor(45, 51, 60)),
];

/// Colours of series, in the order in which they are given away: neighbours differ for the colour-blind too.
pub const SERIES: &[RGBColor] = &[
    RGBColor(47, 120, 210),
    RGBColor(222, 120, 32),
    RGBColor(40, 158, 112),
    RGBColor(165, 92, 198),
    RGBColor(205, 66, 72),
    RGBColor(24, 160, 180),
    RGBColor(152, 124, 54),
    RGBColor(122, 130, 142),
];

/// The style sheet that stands inside each picture, and may stand in a page many times.
pub fn sheet() -> String {
    let mut dark = String::new();
    for &(bright, dark_one) in DARK {
        for property in ["fill", "stroke"] {
            let (bright, other) = (hex(bright), hex(dark_one));
            let _ = write!(dark, "svg [{property}=\"{bright}\"]{{{property}:{other}}}");
        }
    }
    format!("svg text{{font-family:system-ui,sans-serif}}@media (prefers-color-scheme:dark){{{dark}}}")
}

/// Writes a colour as the SVG backend does.
fn hex(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// Dark to bright for 0 to 1: brightness grows with the value, so that it reads without its colour too.
pub fn heat(share: f32) -> RGBColor {
    const STOPS: [[f32; 3]; 5] =
        [[46.0, 24.0, 84.0], [62.0, 78.0, 150.0], [48.0, 142.0, 152.0], [128.0, 196.0, 112.0], [246.0, 232.0, 120.0]];
    let at = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f32;
    let below = (at as usize).min(STOPS.len() - 2);
    let part = at - below as f32;
    let mix = |channel: usize| {
        let (from, to) = (STOPS[below][channel], STOPS[below + 1][channel]);
        (from + (to - from) * part).round() as u8
    };
    RGBColor(mix(0), mix(1), mix(2))
}
