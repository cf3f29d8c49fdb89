// Drives @sesamecare-oss/redlock.
import { Redlock } from "@sesamecare-oss/redlock";
import { serve } from "./line.mjs";

await serve(Redlock, "@sesamecare-oss/redlock");
