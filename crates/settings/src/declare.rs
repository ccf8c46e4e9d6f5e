/// Declares a struct of settings.
///
/// ```
/// use demask_settings::{Settings, settings};
///
/// settings! {
///     /// Settings of a lamp.
///     pub struct Lamp of "setting" {
///         /// Brightness in percent.
///         brightness: u32 = 80, "PERCENT" in (0, 100);
///         /// Names of the rooms that it lights.
///         room: Vec<String>, "NAME" or "all";
///         /// Light that flickers.
///         flicker: bool, "";
///     }
/// }
///
/// let mut lamp = Lamp::default();
/// lamp.set("brightness", "30")?;
/// lamp.set_json("room", serde_json::json!(["hall"]))?;
/// assert_eq!((lamp.brightness(), lamp.room, lamp.flicker), (30, Some(vec!["hall".to_owned()]), None));
/// let refused = Lamp::default().set("brightness", "200").unwrap_err().to_string();
/// assert_eq!(refused, "`brightness` is \"200\", expected a whole number from 0 to 100");
/// assert_eq!(Lamp::FIELDS[0].help(), "Brightness in percent [default: 80]");
/// # Ok::<(), demask_settings::SettingError>(())
/// ```
///
/// A field is `name: TYPE [as MARKER] [= DEFAULT], "PLACEHOLDER" [or "DEFAULT IN WORDS"] [in (LEAST, MOST)];`, the marker
/// one of [`Reads`](crate::Reads), [`Plain`](crate::Plain) if there is none. A field with a default has a method of its name that
/// returns its value or the default.
#[macro_export]
macro_rules! settings {
    ($(#[doc = $about:literal])+ pub struct $settings:ident of $what:literal
     $(removed [$($removed:expr),+ $(,)?])? {$(
        $(#[doc = $doc:literal])+
        $name:ident: $of:ty $(as $marker:ident)? $(= $default:expr)?, $place:literal $(or $usually:literal)? $(in $bounds:expr)?;
    )+}) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $settings {
            $($(#[doc = $doc])+ pub $name: Option<$of>,)+
        }

        impl $settings {
            $($crate::declared_default!($(#[doc = $doc])+ $name: $of $(= $default)?);)+
        }

        impl $crate::Settings for $settings {
            const FIELDS: &'static [$crate::Field] = &[$($crate::Field {
                name: stringify!($name),
                kind: <$crate::declared_marker!($($marker)?) as $crate::Reads<$of>>::KIND,
                many: <$crate::declared_marker!($($marker)?) as $crate::Reads<$of>>::MANY,
                place: $place,
                bounds: $crate::declared_bounds!($($bounds)?),
                default: || $crate::declared_json!(($($marker)?), $of $(, $default)?),
                usually: concat!($($usually)?),
                about: concat!($($doc),+).trim_ascii(),
            }),+];
            const WHAT: &'static str = $what;
            const REMOVED: &'static [(&'static str, &'static str, &'static str)] = &[$($($removed),+)?];

            fn set(&mut self, name: &str, text: &str) -> Result<(), $crate::SettingError> {
                $(if $crate::names::same(name, stringify!($name)) {
                    type Marker = $crate::declared_marker!($($marker)?);
                    let read = <Marker as $crate::Reads<$of>>::from_text(text, $crate::declared_bounds!($($bounds)?));
                    let value = read.map_err(|why| why.of(stringify!($name), || format!("{text:?}")))?;
                    self.$name = Some(<Marker as $crate::Reads<$of>>::join(self.$name.take(), value));
                    return Ok(());
                })+
                Err(<Self as $crate::Settings>::unknown(name))
            }

            fn set_json(&mut self, name: &str, value: $crate::serde_json::Value) -> Result<(), $crate::SettingError> {
                $(if $crate::names::same(name, stringify!($name)) {
                    type Marker = $crate::declared_marker!($($marker)?);
                    if !value.is_null() {
                        let found = value.to_string();
                        let read = <Marker as $crate::Reads<$of>>::from_json(value, $crate::declared_bounds!($($bounds)?));
                        self.$name = Some(read.map_err(|why| why.of(stringify!($name), || found))?);
                    }
                    return Ok(());
                })+
                Err(<Self as $crate::Settings>::unknown(name))
            }

            fn json(&self, name: &str) -> Option<$crate::serde_json::Value> {
                $(if name == stringify!($name) {
                    let json = <$crate::declared_marker!($($marker)?) as $crate::Reads<$of>>::to_json;
                    return self.$name.as_ref().map(json);
                })+
                None
            }

            fn fill(&mut self, other: Self) {
                $(if self.$name.is_none() {
                    self.$name = other.$name;
                })+
            }
        }

        /// Writes the settings that have a value, and no others.
        impl $crate::serde::Serialize for $settings {
            fn serialize<S: $crate::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use $crate::{Settings, serde::ser::SerializeMap};
                let mut map = serializer.serialize_map(None)?;
                for field in Self::FIELDS {
                    if let Some(value) = self.json(field.name) {
                        map.serialize_entry(field.name, &value)?;
                    }
                }
                map.end()
            }
        }

        /// Reads an object of settings. A name in 2 spellings is refused.
        impl<'de> $crate::serde::Deserialize<'de> for $settings {
            fn deserialize<D: $crate::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::from_object(deserializer)
            }
        }
    };
}

/// The marker of a declared field.
#[doc(hidden)]
#[macro_export]
macro_rules! declared_marker {
    () => {
        $crate::Plain
    };
    ($marker:ident) => {
        $crate::$marker
    };
}

/// The bounds of a declared field.
#[doc(hidden)]
#[macro_export]
macro_rules! declared_bounds {
    () => {
        (0, u64::MAX)
    };
    ($bounds:expr) => {
        $bounds
    };
}

/// The default of a declared field as JSON.
#[doc(hidden)]
#[macro_export]
macro_rules! declared_json {
    (($($marker:ident)?), $of:ty) => { None };
    (($($marker:ident)?), $of:ty, $default:expr) => {
        Some(<$crate::declared_marker!($($marker)?) as $crate::Reads<$of>>::to_json(&$default))
    };
}

/// The method of a declared field that has a default.
#[doc(hidden)]
#[macro_export]
macro_rules! declared_default {
    ($(#[doc = $doc:literal])+ $name:ident: $of:ty) => {};
    ($(#[doc = $doc:literal])+ $name:ident: $of:ty = $default:expr) => {
        $(#[doc = $doc])+ #[doc = "The default if it is unset."]
        pub fn $name(&self) -> $of {
            self.$name.clone().unwrap_or_else(|| $default)
        }
    };
}
