use super::*;

fn figure(content: Content) -> Figure {
    Figure {
        name: "x".into(),
        title: "A & B < C".into(),
        caption: String::new(),
        panels: vec![Panel { x: Axis::log("seconds per item (s)"), y: Axis::new("accuracy (%)"), content }],
        data: Table::default(),
    }
}

fn series(label: &str, join: Join) -> Series {
    let point = |x: f64| Point { x, y: 50.0 + x, error: 2.0, mark: format!("#{x}") };
    Series::new(label, join, [1.0, 2.0, 4.0].map(point).to_vec())
}

#[test]
fn numbers_are_short() {
    let found = [0.0, 1234.5, 123.45, 1.5, 2.0, 0.1239, 0.00123, 0.03125, 0.05, 1.23e-9, -7.126].map(short);
    assert_eq!(found, ["0", "1234", "123.5", "1.5", "2", "0.124", "0.00123", "0.0312", "0.05", "1.23e-9", "-7.13"]);
}

#[test]
fn csv_quotes_what_separates() {
    let mut table = Table::new(&["a", "b,c"]);
    table.rows.push(vec!["say \"x\"".into(), "1".into()]);
    assert_eq!(table.csv(), "a,\"b,c\"\n\"say \"\"x\"\"\",1\n");
}

#[test]
fn a_picture_holds_its_texts_as_text_and_colours_for_both_schemes() {
    let svg = figure(Content::Series(vec![series("dual & <none>", Join::Line)])).svg().unwrap();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    for text in ["A &amp; B &lt; C", "seconds per item (s)", "accuracy (%)", "dual &amp; &lt;none&gt;", "#4"] {
        assert!(svg.contains(text), "{text} is missing");
    }
    assert!(svg.contains("prefers-color-scheme:dark"));
    assert!(!svg.contains("<script") && !svg.contains("NaN"));
    // Paper, ink, grid and muted text of the picture are those that the style sheet replaces.
    for colour in ["#FFFFFF", "#20242B", "#E3E6EA", "#5B6470"] {
        assert!(svg.matches(colour).count() > 2, "{colour}");
    }
}

#[test]
fn every_kind_of_content_is_drawn_and_nothing_is_no_mistake() {
    for join in [Join::None, Join::Line, Join::Front, Join::Cloud] {
        assert!(figure(Content::Series(vec![series("", join)])).svg().unwrap().len() > 1000);
    }
    let heat = Heat { cells: vec![vec![Some(1.0), None], vec![Some(0.2)]], lowest: 0.0, ..Heat::default() };
    let svg = figure(Content::Heat(heat)).svg().unwrap();
    assert!(svg.contains("#F6E878"), "the brightest colour");
    for content in [Content::Series(Vec::new()), Content::Heat(Heat::default())] {
        assert!(!figure(content).svg().unwrap().contains("NaN"));
    }
}

#[test]
fn one_label_has_one_colour_in_all_panels() {
    let mut figure = figure(Content::Series(vec![series("b", Join::Line), series("a", Join::Line)]));
    figure.panels.push(Panel { content: Content::Series(vec![series("a", Join::Line)]), ..figure.panels[0].clone() });
    let svg = figure.svg().unwrap();
    assert_eq!(svg.matches(">\na\n</text>").count(), 1, "one entry of the legend");
    assert_eq!(svg.matches("stroke=\"#DE7820\" stroke-width=\"2\"").count(), 2, "lines of the second colour");
}

#[test]
fn series_of_one_hue_differ_by_their_markers() {
    let [a, b] = [("a", Marker::Circle), ("b", Marker::Square)]
        .map(|(label, marker)| series(label, Join::None).like("x", marker));
    let svg = figure(Content::Series(vec![a, b, series("c", Join::None)])).svg().unwrap();
    // Three points and an entry of the legend each; the third series has the second colour.
    let of = |form: &str, colour: &str| {
        svg.lines()
            .filter(|line| line.contains(&format!("<{form} ")) && line.contains(&format!("fill=\"{colour}\"")))
            .count()
    };
    assert_eq!((of("circle", "#2F78D2"), of("polygon", "#2F78D2"), of("circle", "#DE7820")), (4, 4, 4), "{svg}");
}
