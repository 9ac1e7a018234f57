package kafscale.messages;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;

/** Gives every field that a version's schema has, tagged ones too, a value that no other one has. */
final class Filler {
    private final boolean nulls;
    private final boolean unknownTags;
    private int last = 1;

    Filler(boolean nulls, boolean unknownTags) {
        this.nulls = nulls;
        this.unknownTags = unknownTags;
    }

    void fill(Object message, Schema schema) throws ReflectiveOperationException {
        for (BoundField bound : schema.fields()) {
            if (bound.def.type instanceof TaggedFields tagged) {
                for (var field : tagged.fields().values()) {
                    set(message, field.name, field.type);
                }
                if (unknownTags) {
                    ((Message) message).unknownTaggedFields().add(new RawTaggedField(10_000, new byte[300]));
                }
            } else {
                set(message, bound.def.name, bound.def.type);
            }
        }
    }

    private void set(Object message, String name, org.apache.kafka.common.protocol.types.Type type)
            throws ReflectiveOperationException {
        for (Field field : message.getClass().getDeclaredFields()) {
            if (field.getName().equalsIgnoreCase(name.replace("_", ""))) {
                field.setAccessible(true);
                boolean isNull = nulls && type.isNullable();
                field.set(message, isNull ? null : value(field.getGenericType(), field.getType(), type));
                return;
            }
        }
        throw new NoSuchFieldException(message.getClass() + " has no " + name);
    }

    private Object value(Type generic, Class<?> kind, org.apache.kafka.common.protocol.types.Type type)
            throws ReflectiveOperationException {
        if (Collection.class.isAssignableFrom(kind)) {
            return items(generic, kind, type.arrayElementType().orElseThrow());
        }
        if (kind == boolean.class) {
            return true;
        }
        if (kind == String.class) {
            return "text " + next();
        }
        if (kind == byte[].class) {
            return bytes();
        }
        if (kind == ByteBuffer.class) {
            return ByteBuffer.wrap(bytes());
        }
        if (kind == Uuid.class) {
            return new Uuid(next(), next());
        }
        if (kind == byte.class || kind == Byte.class) {
            return (byte) (next() % 100);
        }
        if (kind == short.class || kind == Short.class) {
            return (short) next();
        }
        if (kind == int.class || kind == Integer.class) {
            return (int) next();
        }
        if (kind == long.class || kind == Long.class) {
            return next() + (1L << 33);
        }
        if (kind == double.class) {
            return next() + 0.5;
        }
        if (kind.getSimpleName().equals("BaseRecords")) {
            // Their classes have moved between the releases that this runs with.
            byte[] raw = bytes();
            ByteBufferAccessor from = new ByteBufferAccessor(ByteBuffer.wrap(raw));
            return ByteBufferAccessor.class.getMethod("readRecords", int.class).invoke(from, raw.length);
        }
        Constructor<?> made = kind.getDeclaredConstructor();
        made.setAccessible(true);
        Object nested = made.newInstance();
        fill(nested, (Schema) type);
        return nested;
    }

    private Object items(Type generic, Class<?> kind, org.apache.kafka.common.protocol.types.Type element)
            throws ReflectiveOperationException {
        boolean linked = kind != List.class;
        Type parent = linked ? kind.getGenericSuperclass() : generic;
        Class<?> of = (Class<?>) ((ParameterizedType) parent).getActualTypeArguments()[0];
        @SuppressWarnings("unchecked")
        Collection<Object> items = linked
                ? (Collection<Object>) kind.getDeclaredConstructor().newInstance()
                : new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            items.add(value(of, of, element));
        }
        return items;
    }

    private byte[] bytes() {
        return ("bytes " + next()).getBytes(StandardCharsets.UTF_8);
    }

    private long next() {
        return ++last;
    }
}
