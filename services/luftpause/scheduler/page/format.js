// How is a number, a duration or a time of day written?

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

export const count = (value) => (value === null || value === undefined ? "–" : Math.abs(value) < 100_000 ? WHOLE.format(value) : COMPACT.format(value));

export const compact = (value) => COMPACT.format(value);

export const rate = (value) => (value >= 100 ? count(value) : value >= 10 ? value.toFixed(0) : value > 0 ? value.toFixed(1) : "0");

export const percent = (part) => (Number.isFinite(part) ? `${Math.round(100 * part)} %` : "–");

/** Seconds as a person says them: 0.3 s, 12 s, 4 min 05 s, 2 h 10 min, 3 d 4 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 9.95) return `${Math.max(0, seconds).toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

export const clock = (milliseconds) => CLOCK.format(milliseconds);

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
